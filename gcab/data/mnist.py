"""MNIST: 60,000 and 10,000 grey images of handwritten digits, 28x28 pixels."""

from gcab.data.idx import Idx, idx_dataset

MNIST = Idx(
    "mnist",
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    tuple("0123456789"),
    {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
DATASET = idx_dataset(MNIST, "MNIST", 0.1307, 0.3081, flip=False)
