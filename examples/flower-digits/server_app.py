"""The server app: runs the method and evaluates the model after every round. The settings are in pyproject.toml."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from task import evaluate, net

from fedtaco.flower import FedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, model = context.run_config, net()
    strategy = FedStrategy(
        method=str(config["method"]),
        model=model,
        detector=str(config["detector"]),
        min_available_nodes=int(config["min-available-nodes"]),
        local_steps=int(config["local-steps"]),
        batch_size=int(config["batch-size"]),
        local_lr=float(config["local-lr"]),
        fraction_evaluate=0.0,
        checkpoint=str(config["checkpoint"]) or None,
        overwrite=bool(config["overwrite"]),
        dataset="digits",
    )

    def global_evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({**evaluate(model)})

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=global_evaluate,
    )
