"""The client app: trains on the data of its node when the server asks for it."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from task import load_data, net

import fedtaco.flower

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    data = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    return fedtaco.flower.train(net(), data, msg, context)
