"""A compile inside the capture of a CUDA graph: the first call builds, allocates and synchronizes,
which a capture forbids.

    reprokit capture -- python samples/cuda_graph_capture.py            first call inside the capture
    reprokit capture -- python samples/cuda_graph_capture.py --warm     cure: one call before it
    reprokit capture -- python samples/cuda_graph_capture.py --managed  cure: the compiler captures

``--managed`` compiles with mode="reduce-overhead". Without a CUDA device, the sample exits with a
message.
"""

import sys

import torch


def function(x, weight):
    return torch.softmax(x @ weight, -1)


def main(how):
    if not torch.cuda.is_available():
        sys.exit("this sample needs a CUDA device")
    x, weight = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    if how == "--managed":
        compiled = torch.compile(function, mode="reduce-overhead")
        for _ in range(3):
            out = compiled(x, weight)
        return out.sum().item()
    compiled = torch.compile(function)
    if how == "--warm":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            compiled(x, weight)
        torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compiled(x, weight)
    graph.replay()
    return out.sum().item()


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else ""))
