"""Stands for election with the client's own library, says so when it leads, and goes on until it is killed."""

import sys
import threading

from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

namespace, name, identity = sys.argv[1:]


def lead():
    print(f"{identity} leads", flush=True)
    threading.Event().wait()


config.load_kube_config()
settings = electionconfig.Config(
    LeaseLock(name, namespace, identity),
    lease_duration=3,
    renew_deadline=2,
    retry_period=1,
    onstarted_leading=lead,
    onstopped_leading=lambda: None,
)
leaderelection.LeaderElection(settings).run()
