"""A Ray Serve deployment that blocks its event loop until a different deployment asks it back.

https://github.com/ray-project/ray/issues/40328 and
https://github.com/griptape-ai/griptape-nodes-engine/issues/4469 (a synchronous wait in the loop)

Truth: the replica of Gateway waits synchronously for the answer of Scorer, in the thread of its
event loop. The replica of Scorer awaits features of Gateway, which that event loop cannot serve.

Words: Gateway, Scorer|event loop
Run: {python} ray_serve_blocked_loop.py {port}
Ask: sleep:3 /score&
Settle: 10
Attach: root
Processes: ray::ServeReplica
Needs: ray.serve
"""

import sys
import time

import ray
from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Scorer:
    async def score(self, name: str) -> float:
        gateway = serve.get_deployment_handle("Gateway", "default")
        features = await gateway.features.remote(name)  # HANG
        return sum(features) / len(features)


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=10)
class Gateway:
    def __init__(self, scorer: serve.handle.DeploymentHandle) -> None:
        self.scorer = scorer

    async def __call__(self, request: object) -> str:
        answer = self.scorer.score.remote("a")
        return f"{ray.get(await answer._to_object_ref())}"  # HANG

    async def features(self, name: str) -> list[float]:
        return [1.0, 2.0]


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": int(sys.argv[1])}, proxy_location="HeadOnly")
    serve.run(Gateway.bind(Scorer.bind()))
    print("ready", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
