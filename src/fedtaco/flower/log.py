"""The log that operators read: fedtaco's lines appear among Flower's own."""

from logging import getLogger

log = getLogger("flwr.fedtaco")
