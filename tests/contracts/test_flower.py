"""Every algorithm through Flower's own ClientApp, Message and Context objects, in this process."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from every_algorithm import ONCE, algorithm
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from deployment import deployed, sites
from fedsaddle.deployment.flower.app import FlowerTransport, client_app, find_nodes
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.federation.records import same
from small import play

NODES = [907, 11, 523, 64, 388, 205]  # Flower's node numbers are random


class Grid:
    """Hands messages to client apps, and gives replies back in another order, as Flower does."""

    def __init__(self, made, break_node=None):
        self.apps = {
            NODES[i]: client_app(lambda c, s=site: s.answer, lambda c, i=i: f"site-{i}") for i, site in made.items()
        }
        self.break_node = break_node

    def get_node_ids(self):
        return list(self.apps)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            if node == self.break_node:
                replies.append(Message(Error(code=1, reason="secret"), reply_to=message))
                continue
            TaskIdentity.node_id = node
            reply = self.apps[node](message, context)
            replies.append(reply)
        return replies[::-1]


@pytest.fixture(autouse=True)
def identity():
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@pytest.mark.parametrize(("case", "world"), ONCE)
def test_a_run_over_flower_is_the_simulated_one_to_the_bit(case, world):
    rows = world.rows()
    made = sites(lambda: algorithm(case, world), rows)
    transport = FlowerTransport(Grid(made), NODES)
    found = play(algorithm(case, world), deployed(lambda: algorithm(case, world), rows, transport=transport), 3)
    assert same(found[-1], play(algorithm(case, world), SerialEngine(rows), 3)[-1])


def test_sites_are_found_by_name():
    case, world = ONCE[0].values
    grid = Grid(sites(lambda: algorithm(case, world), world.rows()))
    assert find_nodes(grid, ["site-4", "site-0", "site-9"], 1.0) == {"site-0": NODES[0], "site-4": NODES[4]}


def test_a_name_that_two_nodes_report_is_ignored():
    case, world = ONCE[0].values
    grid = Grid(sites(lambda: algorithm(case, world), world.rows()))
    grid.apps[NODES[1]] = grid.apps[NODES[0]]
    assert "site-0" not in find_nodes(grid, ["site-0", "site-2"], 1.0)


def test_a_node_that_fails_is_left_out():
    case, world = ONCE[1].values  # all clients
    rows = world.rows()
    transport = FlowerTransport(Grid(sites(lambda: algorithm(case, world), rows), break_node=NODES[2]), NODES)
    clients = deployed(lambda: algorithm(case, world), rows, transport=transport)
    play(algorithm(case, world), clients, 1)
    assert clients.attendance.left_out[2] == {"failed: Flower's error 1": 1}
