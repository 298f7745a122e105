"""A healthy Ray Serve application, whose requests take some seconds.

Truth: it is idle, or it serves requests that take some seconds.

Run: {python} ray_healthy.py {port}
Settle: 10
Busy: /slow
Attach: root
Processes: ray::ServeReplica
Needs: ray.serve
"""

import asyncio
import sys
import time

import ray
from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Scorer:
    async def __call__(self, request: object) -> str:
        await asyncio.sleep(3)
        return "1.0"


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": int(sys.argv[1])}, proxy_location="HeadOnly")
    serve.run(Scorer.bind())
    print("ready", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
