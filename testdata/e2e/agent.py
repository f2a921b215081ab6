"""An agent as the fleet's are: uvicorn and Starlette, A2A 0.3 on POST /, one
provider call at a time. A call takes as long as the message asks for
("wait 20 ..."); while the file PROVIDER_HANGS is there, it never ends."""

import asyncio
import os
import uuid

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

NAME = os.environ["AGENT_NAME"]
PORT = int(os.environ["AGENT_PORT"])
PROVIDER_HANGS = os.environ.get("PROVIDER_HANGS", "/run/provider-hangs")

state = {"task": None, "sessions": set(), "provider": None}


async def provider(text):
    async with state["provider"]:
        if os.path.exists(PROVIDER_HANGS):
            await asyncio.Event().wait()
        words = text.split()
        await asyncio.sleep(float(words[1]) if words[0] == "wait" else 0.05)


async def message(request):
    call = await request.json()
    answer = {"jsonrpc": "2.0", "id": call.get("id")}
    if call.get("method") != "message/send":
        answer["error"] = {"code": -32601, "message": "Method not found"}
        return JSONResponse(answer)
    sent = call["params"]["message"]
    text = sent["parts"][0]["text"]
    state["sessions"].add(sent.get("contextId"))
    state["task"] = text
    await provider(text)
    if state["task"] == text:
        state["task"] = None
    answer["result"] = {
        "kind": "message",
        "role": "agent",
        "messageId": uuid.uuid4().hex,
        "parts": [{"kind": "text", "text": "pong"}],
    }
    return JSONResponse(answer)


async def health(request):
    task = state["task"]
    if task is not None and len(task) > 15:
        task = task[:15] + "..."
    return JSONResponse({
        "agent": NAME,
        "status": "running",
        "circuit_open": False,
        "circuit_failures": 0,
        "sessions": len(state["sessions"]),
        "current_task": task,
    })


async def start():
    state["provider"] = asyncio.Lock()


app = Starlette(
    routes=[Route("/health", health), Route("/", message, methods=["POST"])],
    on_startup=[start],
)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
