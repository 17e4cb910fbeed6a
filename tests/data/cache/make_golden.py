#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden entries beside this file, from cache/FORMAT.md alone.

The bytes are put together here by hand, without the cache library: golden_test.cpp holds the
library to them. Files of a version that was ever released are never written again; a new version
adds files. Usage: python3 make_golden.py [folder]
"""
import hashlib
import json
import os
import struct
import sys


def request_digest(ingredients):
    text = b"hstu-cache/1 %d\n" % len(ingredients)
    for name, value in ingredients:
        name, value = name.encode(), value.encode()
        text += b"%d %d\n" % (len(name), len(value)) + name + value
    return hashlib.sha256(text).hexdigest()


def entry(ingredients, toolchain, metadata, payload, version=1):
    header = json.dumps(
        {
            "request": request_digest(ingredients),
            "toolchain": toolchain,
            "ingredients": ingredients,
            "metadata": metadata,
        },
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode() + b"\n"
    start = b"hstu-ko\n" + struct.pack("<IIQQ", version, 0, len(header), len(payload))
    digest = hashlib.sha256(start + header + payload).hexdigest().encode()
    return start + digest + header + payload


GOLDEN = {
    "v1-plain.hko": entry(
        [["target", "gfx90a"], ["options", "-O3"], ["source", "kernel\nbody\n"]],
        "c" * 64,
        '{"entry":"f"}',
        b"payload",
    ),
    "v1-text.hko": entry(
        [["Grüße", 'a "quoted" \\ text\twith\x01\x1f\x7f controls\r\n'], ["", "中文 🙂"]],
        "0123456789abcdef" * 4,
        "",
        bytes(range(256)),
    ),
    "v1-empty.hko": entry([], "0" * 64, "", b""),
    # What a later release may write: only magic and version are fixed for all time.
    "v2-future.hko": b"hstu-ko\n" + struct.pack("<I", 2) + b"a header of some new kind\n" * 8,
}

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name, content in GOLDEN.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
