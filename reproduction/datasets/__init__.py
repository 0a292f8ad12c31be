"""The data sets of the papers' experiments, read from a data folder or downloaded from the official pages."""

from reproduction.datasets.amazon import amazon_forms, load_amazon
from reproduction.datasets.cifar10 import load_cifar10
from reproduction.datasets.folder import DatasetError, data_folder
from reproduction.datasets.mnist import load_mnist
from reproduction.datasets.newsgroups import load_20newsgroups
from reproduction.datasets.split import Split

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
