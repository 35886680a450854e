#!/bin/bash
# Builds weir, runs it in the foreground with two real engines that it starts itself, and shows one
# streamed answer. Ctrl-C ends all of it.
set -euo pipefail
cd "$(dirname "$0")/.."

API=http://127.0.0.1:8080
ADMIN=http://127.0.0.1:9090
MODEL=smollm2
QUESTION="What is a river? Answer in two sentences."
READY_SECONDS=180

weir=$$ # this process becomes weir below

is_ready() {
    curl -fs -o /dev/null --max-time 5 "$ADMIN/health/ready"
}

wait_until_ready() {
    local i
    for ((i = 0; i < READY_SECONDS * 5; i++)); do
        kill -0 "$weir" 2>/dev/null || exit 0 # it has said why
        ! is_ready || return 0
        sleep 0.2
    done
    echo "quickstart: no engine is ready after $READY_SECONDS s; their output is in build/logs" >&2
    kill -TERM "$weir"
    exit 1
}

next_steps() {
    cat <<END

-- weir is running: try it

    curl -N $API/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"model": "$MODEL", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'

    from openai import OpenAI   # pip install openai
    client = OpenAI(base_url="$API/v1", api_key="none")
    stream = client.chat.completions.create(model="$MODEL", stream=True,
                                            messages=[{"role": "user", "content": "Hello!"}])
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)

    status page   $ADMIN/
    metrics       $ADMIN/metrics
    engine logs   build/logs
    configuration examples/quickstart.yaml

-- one line per request follows; Ctrl-C ends weir and its engines

END
}

demonstrate() {
    wait_until_ready
    printf -- '-- %s asks %s: %s\n\n' "$API" "$MODEL" "$QUESTION"
    python3 tools/ask.py "$API" "$MODEL" "$QUESTION" || true
    ! kill -0 "$weir" 2>/dev/null || next_steps
}

tools/deps.sh build engines
make
echo "-- starting weir with two llama.cpp engines"
(demonstrate &) # an orphan at once, so that weir has no child that it does not know
exec build/weir serve --config examples/quickstart.yaml
