"""The twelve layers of an environment, in the order in which every record, diff and rule names them."""

from enum import StrEnum


class Layer(StrEnum):
    HARDWARE = "hardware"
    FIRMWARE = "firmware"
    OS = "os"
    KERNEL = "kernel"
    DRIVER = "driver"
    FABRIC = "fabric"
    CONTAINER = "container"
    SCHEDULER = "scheduler"
    IMAGE = "image"
    CODE = "code"
    CONFIG = "config"
    LAUNCH = "launch"
