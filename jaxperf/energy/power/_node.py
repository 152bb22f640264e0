"""Power of nodes from that of their accelerators: host, fans, power supplies, and switches."""

from dataclasses import dataclass

import jax
import numpy as np

from jaxperf.config import Node

Watts = float | np.ndarray | jax.Array


@dataclass(frozen=True, slots=True)
class NodeDraw:
    """What the nodes of a run draw, all together.

    Attributes:
        nodes: how many.
        dc_w: behind the power supplies, as the given power of accelerators.
        ac_w: before them.
    """

    nodes: int
    dc_w: Watts
    ac_w: Watts


def node_power(
    gpus_w: Watts,
    gpus: int,
    gpus_per_node: int,
    node: Node,
    idle_w: float,
    switches_w: float = 0.0,
) -> NodeDraw:
    """What nodes draw with accelerators at work in them.

    `DC = (accelerators + host) (1 + fans) + switches x efficiency`, `AC = DC / efficiency`. Nodes
    are filled one after the other; what is left in the last draws what it does idle.

    Args:
        gpus_w: () or any shape, of all accelerators of the run together.
        gpus: how many they are, at least 1.
        gpus_per_node: places in a node.
        node: host, fans and power supplies.
        idle_w: of an accelerator in a node of the run that is not used.
        switches_w: of the switches between nodes, at the wall: as in MLPerf their number times the
            most each may draw. Watts of theirs behind a power supply count as MLPerf counts them.

    Returns:
        The power of all nodes and switches.

    Example:
        >>> from jaxperf.config import Node
        >>> node = Node(host_w=1000.0, fan_share=0.1, conversion_efficiency=0.5)
        >>> power = node_power(5000.0, gpus=10, gpus_per_node=8, node=node, idle_w=50.0)
        >>> power.nodes, round(float(power.dc_w), 6), round(float(power.ac_w), 6)
        (2, 8030.0, 16060.0)
    """
    nodes = -(-gpus // gpus_per_node)
    unused_w = (nodes * gpus_per_node - gpus) * idle_w
    inside_w = gpus_w + unused_w + nodes * node.host_w
    efficiency = node.conversion_efficiency
    dc_w = inside_w * (1.0 + node.fan_share) + switches_w * efficiency
    return NodeDraw(nodes, dc_w, dc_w / efficiency)
