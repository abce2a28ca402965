"""What an operator reads: fedtaco's lines stand among Flower's own."""

from logging import getLogger

log = getLogger("flwr.fedtaco")
