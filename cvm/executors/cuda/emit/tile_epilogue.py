"""Epilogues of tiles: the finished sums that a warp holds in registers, pixel by pixel.

A thread holds the sums of a few pixels, and for each of them the sums of neighbouring channels (`fragments.column`).
Where warps share the words of the sums, the slices meet in shared memory, and each slice finishes some of the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.cuda.emit.codes import Codes, moved, pixel_at
from cvm.executors.cuda.emit.fragments import LANES, ROWS
from cvm.executors.cuda.emit.staging import Staging
from cvm.executors.cuda.emit.threads import Kernel
from cvm.executors.cuda.emit.tiling import Tile, Tiling
from cvm.executors.native.emit.ir import V, typed
from cvm.records import dataclass

__all__ = ["Epilogue"]


@dataclass(slots=True)
class Epilogue:
    """Writes the epilogue of one tile. ``warp`` is the place of the warp (pixels, channels, slice), ``thread`` the
    group and the member of the thread.
    """

    code: Kernel
    tiling: Tiling
    tile: Tile
    staging: Staging
    codes: Codes
    warp: tuple[V, V, V]
    thread: tuple[V, V]

    @staticmethod
    def of(staging: Staging, alignments: Sequence[int], warp: tuple[V, V, V], thread: tuple[V, V]) -> Epilogue:
        """The epilogue of the tile of a staging."""
        code, tiling, tile = staging.code, staging.tiling, staging.tile
        segment, kernel = tile.segment, tiling.kernel
        end = min(kernel.channels, segment.start + segment.count * segment.channels)
        codes = Codes(code, kernel, alignments, 2 * tile.beside, end)
        return Epilogue(code, tiling, tile, staging, codes, warp, thread)

    def write(self, sums: Sequence[V]) -> None:
        """Write the codes of all sums of this thread."""
        code, tile, segment = self.code, self.tile, self.tile.segment
        slices, rows = tile.warps[2], 2 * tile.rows
        room = self._exchange(sums) if slices > 1 else None
        for group in range(tile.groups):
            channel = known = self._channel(group)
            if segment.count % tile.together:  # the last tile may have fewer blocks
                last = segment.start + segment.count * segment.channels - self.codes.width
                known = code.intrinsic("umin", channel, last)
            self.codes.load([segment], known)
            for first in range(0, rows, slices):
                if room is None:
                    self._row(typed("i32", first), channel, [sums[slot] for slot in self._slots(first, group)])
                else:
                    self._shared_row(room, first, group, channel)

    def _slots(self, row: int, group: int) -> list[int]:
        """The numbers of the sums of neighbouring channels in a row of 8 pixels."""
        tile = self.tile
        tiles = [((row // 2) * tile.groups + group) * tile.beside + beside for beside in range(tile.beside)]
        return [4 * one + 2 * (row % 2) + place for place in (0, 1) for one in tiles]

    @property
    def _workers(self) -> int:
        """The threads of one slice."""
        return LANES * self.tile.warps[0] * self.tile.warps[1]

    def _exchange(self, sums: Sequence[V]) -> V:
        """Write all sums to shared memory. Returns the address of this thread's place in the first slice."""
        code = self.code
        code.barrier()
        place = code.binary("urem", self.staging.thread, self._workers)
        own = moved(code, self.staging.shared, code.binary("mul", place, 4))
        slice_ = moved(code, own, code.binary("mul", self.warp[2], 4 * self._workers * self.tile.sums))
        for number, total in enumerate(sums):
            code.store(total, code.at(slice_, 4 * self._workers * number), 4)
        code.barrier()
        return own

    def _shared_row(self, room: V, first: int, group: int, channel: V) -> None:
        """Add up the slices of row ``first`` + the number of the warp's slice, and write the codes of the row."""
        code, tile = self.code, self.tile
        slices, rows = tile.warps[2], 2 * tile.rows
        row = code.binary("add", self.warp[2], first)

        def finish() -> None:
            pair = code.binary("mul", code.binary("lshr", row, 1), 4 * tile.groups * tile.beside)
            number = code.binary("add", pair, code.binary("mul", code.binary("and", row, 1), 2))
            at = moved(code, room, code.binary("mul", number, 4 * self._workers))
            sums = []
            for slot in self._slots(0, group):
                places = [4 * self._workers * (slice_ * tile.sums + slot) for slice_ in range(slices)]
                total = code.load("i32", code.at(at, places[0]), 4)
                for place in places[1:]:
                    total = code.binary("add", total, code.load("i32", code.at(at, place), 4))
                sums.append(total)
            self._row(row, channel, sums)

        if first + slices <= rows:
            finish()
        else:
            code.when(code.compare("ult", row, rows), finish)

    def _channel(self, group: int) -> V:
        """The first channel of this thread in a group. Behind the last block there are none."""
        code, tile = self.code, self.tile
        within = code.binary("mul", self.warp[1], tile.groups * tile.group)
        within = code.binary("add", within, code.binary("mul", self.thread[1], self.codes.width))
        return code.binary("add", code.binary("add", self.staging.channel(), within), group * tile.group)

    def _row(self, row: V, channel: V, sums: Sequence[V]) -> None:
        """Write the codes of one pixel, if it exists: ``row`` counts rows of 8 pixels of the warp."""
        code, tile, kernel = self.code, self.tile, self.tiling.kernel
        first = code.binary("add", self.staging.pixel, code.binary("mul", self.warp[0], ROWS * tile.rows))
        pixel = code.binary("add", code.binary("add", first, self.thread[0]), code.binary("mul", row, 8))
        exists = code.compare("ult", pixel, self.tiling.count)
        exists = code.binary("and", exists, code.compare("ult", channel, self.codes.end))

        def codes() -> None:
            at = pixel_at(code, (kernel.images, kernel.rows, kernel.columns), pixel)
            self.codes.write(at, channel, sums)

        code.when(exists, codes)
