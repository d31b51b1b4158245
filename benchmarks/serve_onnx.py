"""The plain server that one would write around an exported file, to compare `gcab serve` with.

    python benchmarks/serve_onnx.py birds.onnx

It has POST /predict for one image and the memory of the process in GET /metrics; no batches, limits, page or token.
The file is one of `gcab export MODEL FILE.onnx --with-preprocessing`.
"""

import json
import sys
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import uvicorn
from fastapi import FastAPI, UploadFile
from fastapi.responses import PlainTextResponse
from PIL import Image

from gcab.serve.metrics import memory_bytes
from gcab.serve.server import address, listen

TOP = 5


def make_app(file: str) -> FastAPI:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    app = FastAPI()

    @app.post("/predict")
    def predict(images: UploadFile) -> dict[str, Any]:  # not async: FastAPI calls it in one of its 40 threads
        photo = np.asarray(Image.open(images.file).convert("RGB"))[None]
        _, probabilities, unknown = session.run(None, {"images": photo})
        best = np.argsort(-probabilities[0])[:TOP]
        top = [{"class": names[index], "probability": float(probabilities[0, index])} for index in best]
        return {"predictions": [{"file": images.filename, "top": top, "unknown": float(unknown[0])}]}

    @app.get("/metrics")
    def metrics() -> PlainTextResponse:
        return PlainTextResponse(f"process_resident_memory_bytes {memory_bytes()[0]}\n")

    return app


def main() -> None:
    app = make_app(sys.argv[1])
    with listen("127.0.0.1", 0) as listener:
        print(f"{sys.argv[1]} is served at {address(listener)}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
