"""Traced runs that several tests read: of clusters with one pass and with token groups, of a ring, of warps' rings."""

from dataclasses import replace
from functools import lru_cache

from skinny_gemm import device
from skinny_gemm.analysis import balanced, cluster, pipeline
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime.trials import traced
from skinny_gemm.tactics import BalancedSplitKTactic, WarpSplitKTactic, WsGemmTactic
from skinny_gemm.tactics.base import FIRST

SINGLE, GROUPS = WsGemmTactic(2, 2, 4, 1, 0, 2), WsGemmTactic(2, 2, 2, 0, 8, 1)
SINGLE_PROBLEM, GROUPS_PROBLEM = GemmProblem(20, 64, 1024), GemmProblem(28, 64, 1024)
STAGES, TILES = 3, 8
WARPS, WARPS_PROBLEM = BalancedSplitKTactic(5, 1, 4, 64, 2, 8), GemmProblem(5, 72, 1024)  #: tiles of 14 and 15 rows
SCATTER, SCATTER_PROBLEM = BalancedSplitKTactic(2, 4, 2, 64, 1, 16), GemmProblem(11, 80, 1024)
RING, RING_PROBLEM = WarpSplitKTactic(16, 8, 128, STAGES, 2), GemmProblem(8, 16, 128 * TILES)


@lru_cache
def of_cluster(tactic, problem, schedule):
    """The trace of the first cluster, the parts of its blocks, and what its warps did."""
    table = traced(tactic, problem, "sm_90a", schedule, cluster.OPCODES).table
    parts = cluster.owners(problem.m, tactic.rt, tactic.kq, tactic.ks, tactic.tg)
    return table, parts, cluster.cluster_spans(table, tactic, problem)


@lru_cache
def of_ring(schedule, trigger=FIRST):
    """What the warps of the ring did, the phases of its barriers, and the roles of its warps."""
    run = traced(replace(RING, trigger=trigger), RING_PROBLEM, "sm_90a", schedule, pipeline.OPCODES)
    regions = RING.footprint(RING_PROBLEM, device.get("h200")).regions
    spans = pipeline.ring_spans(run.table, regions)
    return spans, pipeline.phases(run.table, regions), pipeline.roles(spans)


@lru_cache
def of_warps(tactic, problem, schedule):
    """The trace of the first cluster of balanced split-K, and what its warps did."""
    table = traced(tactic, problem, "sm_90a", schedule, balanced.OPCODES).table
    return table, balanced.warp_spans(table, tactic, problem)
