"""Two Ray actors that ask each other with ray.get, each while it answers the other.

https://github.com/ray-project/ray/issues/3307

Truth: the actor Coordinator runs connect and waits in ray.get for the actor Server. Server runs
connect and waits in ray.get for Coordinator. The driver waits in ray.get for both.

Words: ray, Coordinator, Server
Run: {python} ray_actors_cycle.py
Settle: 15
Attach: root
Processes: ray::
Needs: ray
"""

import time

import ray


@ray.remote(num_cpus=0)
class Coordinator:
    def connect(self, server: ray.actor.ActorHandle) -> str:
        time.sleep(1)
        return "coordinator: " + ray.get(server.echo.remote("hello"))  # HANG

    def echo(self, text: str) -> str:
        return text


@ray.remote(num_cpus=0)
class Server:
    def connect(self, coordinator: ray.actor.ActorHandle) -> str:
        time.sleep(1)
        return "server: " + ray.get(coordinator.echo.remote("hello"))  # HANG

    def echo(self, text: str) -> str:
        return text


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    coordinator, server = Coordinator.remote(), Server.remote()
    ray.get([coordinator.echo.remote("a"), server.echo.remote("b")])
    print("ready", flush=True)
    calls = [coordinator.connect.remote(server), server.connect.remote(coordinator)]
    print(ray.get(calls))  # HANG


if __name__ == "__main__":
    main()
