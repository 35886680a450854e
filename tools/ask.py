#!/usr/bin/env python3
"""Ask a model one question and print the answer as it arrives.

    tools/ask.py URL MODEL QUESTION        URL: http://127.0.0.1:8080
"""
import json
import sys
import urllib.error
import urllib.request


def events(url, model, question):
    """The `data:` lines of a streamed chat completion, parsed."""
    body = {"model": model, "stream": True, "max_tokens": 80, "temperature": 0,
            "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            data = line.decode().removeprefix("data: ").strip()
            if data and data != "[DONE]":
                yield json.loads(data)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        for event in events(*sys.argv[1:]):
            if "error" in event:
                sys.exit(f"\nask: {event['error']['message']}")
            for choice in event["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
    except urllib.error.HTTPError as error:
        sys.exit(f"ask: {error}: {error.read().decode()}")
    except OSError as error:
        sys.exit(f"ask: {error}")
    print()


if __name__ == "__main__":
    main()
