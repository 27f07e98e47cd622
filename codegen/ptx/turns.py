"""Texts whose workgroups take tiles in turn: what a launch must know of them.

Such a text goes from one tile to the one as many further as there are workgroups, whatever their number is. More of
them than run at once would only wait, and double the time of a launch: clusters lie in one GPC each, so that those of
four may leave a few SMs over, and chips of one architecture differ in their SMs.
"""

from __future__ import annotations

import re

COUNT = "%nctaid.x"
"""The register that nothing else reads."""


def taking_turns(text: str) -> tuple[int, int] | None:
    """Threads of a workgroup and workgroups of a cluster, where the text's workgroups take tiles in turn."""
    if COUNT not in text:
        return None
    threads, cluster = re.search(r"\.reqntid (\d+)", text), re.search(r"\.reqnctapercluster (\d+)", text)
    return (int(threads[1]), int(cluster[1]) if cluster else 1) if threads else None
