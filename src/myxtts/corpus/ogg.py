"""Whether every page of an Ogg file is as it was written: the decoder passes over damaged pages without a word."""

from __future__ import annotations

import os
import struct
import zlib

from myxtts.corpus.rejections import AudioProblem, Reason

# Ogg sums its pages with the polynomial of zlib, but most significant bit first; mirrored bytes make zlib do the work.
_MIRRORED_BYTES = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_HEADER_BYTES = 27
_CHECKSUM_PLACE = slice(22, 26)
_LAST_PAGE_FLAG = 0x04


def check_ogg_pages(descriptor: int, size: int) -> None:
    """Walks the pages of an open Ogg file; raises AudioProblem at the first that is damaged or missing."""
    position, number, is_last = 0, 0, False
    while position < size:
        header = os.pread(descriptor, _HEADER_BYTES + 255, position)
        if len(header) < _HEADER_BYTES or header[:4] != b"OggS":
            raise AudioProblem(Reason.UNREADABLE, f"page {number + 1} does not begin where it should")
        num_segments = header[26]
        header_bytes = _HEADER_BYTES + num_segments
        page_bytes = header_bytes + sum(header[_HEADER_BYTES:header_bytes])
        page = bytearray(os.pread(descriptor, page_bytes, position))
        if len(page) < page_bytes:
            raise AudioProblem(Reason.TRUNCATED, f"page {number + 1} is cut off")
        stored = struct.unpack("<I", page[_CHECKSUM_PLACE])[0]
        page[_CHECKSUM_PLACE] = bytes(4)
        if _sum_page(page) != stored:
            raise AudioProblem(Reason.UNREADABLE, f"page {number + 1} does not match its checksum")
        is_last = bool(header[5] & _LAST_PAGE_FLAG)
        position, number = position + page_bytes, number + 1
    if not is_last:
        raise AudioProblem(Reason.TRUNCATED, "the last page is missing")


def _sum_page(page: bytearray) -> int:
    mirrored = zlib.crc32(page.translate(_MIRRORED_BYTES), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
