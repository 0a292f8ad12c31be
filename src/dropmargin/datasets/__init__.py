"""The data of the papers' experiments, read from a folder of yours or fetched from the official pages."""

from dropmargin.datasets.amazon import amazon_forms, load_amazon
from dropmargin.datasets.cifar10 import load_cifar10
from dropmargin.datasets.folder import DatasetError, data_folder
from dropmargin.datasets.mnist import load_mnist
from dropmargin.datasets.newsgroups import load_20newsgroups
from dropmargin.datasets.split import Split

__all__ = [
    "DatasetError",
    "Split",
    "amazon_forms",
    "data_folder",
    "load_20newsgroups",
    "load_amazon",
    "load_cifar10",
    "load_mnist",
]
