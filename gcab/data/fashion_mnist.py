"""Fashion-MNIST: 60,000 and 10,000 grey images of clothes, 28x28 pixels."""

from gcab.data.idx import Idx, idx_dataset

FASHION = Idx(
    "fashion-mnist",
    "FashionMNIST",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)
DATASET = idx_dataset(FASHION, "Fashion-MNIST", 0.2860, 0.3530, flip=True)
