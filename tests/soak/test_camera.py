"""A camera with two viewers for as long as one likes: nothing grows, nothing is lost.

`make soak` runs it for SOAK_SECONDS (600). What leaks a little a frame, a second or a keepalive shows here
and nowhere else.
"""

from __future__ import annotations

import json

import pytest

from soak_traces import HEAD, SECONDS, SETTINGS, check_flat, sample_while_running
from tensor_pool.testing import Cluster

RATE_HZ = 100
FRAME_BYTES = 8 << 20
SLOTS = 32
"""A third of a second: what a machine of two cores may keep a viewer from running."""

CAMERA = f"""
    import select
    out = pool.producer("camera", dtype="uint8", shape=({FRAME_BYTES},), slots={SLOTS})
    image = np.zeros({FRAME_BYTES}, "uint8")
    print("ready")
    sys.stdin.readline()
    frames, longest, due = 0, 0.0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        image[0] = image[-1] = frames % 251
        begin = time.monotonic()
        out.publish(image)
        frames += 1
        now = time.monotonic()
        longest = max(longest, now - begin)
        due = max(due + 1 / {RATE_HZ}, now - 0.1)  # no burst after a pause of the machine
        time.sleep(max(0.0, due - now))
    import json
    print(json.dumps(dict(frames=frames, longest_ms=1e3 * longest, lease_losses=out.stats.lease_losses)))
    sys.stdin.readline()
"""

VIEWER = """
    import json, select
    inp = pool.consumer("camera", wait_s=20)
    print("ready")
    wrong, ends = 0, False
    while True:
        frame = inp.poll(timeout=0.5)
        if frame is not None:
            try:
                with frame as image: wrong += not image[0] == image[-1] == frame.seq % 251
            except tp.FrameOverwrittenError:
                pass  # counted
        elif select.select([sys.stdin], [], [], 0)[0]:
            break
    stats = inp.stats
    print(json.dumps(dict(
        delivered=stats.delivered, drops=stats.drops, overwritten=stats.overwritten, wrong=wrong,
        descriptors_missed=stats.descriptors_missed, reconnects=stats.reconnects,
    )))
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 180)
def test_a_camera_with_two_viewers_neither_grows_nor_loses_anything() -> None:
    with Cluster(SETTINGS) as host:
        camera = host.run_python(CAMERA)
        camera.read_line()
        viewers = [host.run_python(VIEWER) for _ in range(2)]
        for viewer in viewers:
            viewer.read_line()
        assert host.driver is not None
        camera.say("go")
        traces = sample_while_running(
            {
                "camera": camera,
                "viewer 1": viewers[0],
                "viewer 2": viewers[1],
                "SHM driver": host.driver,
                "media driver": host.media,
            }
        )
        camera.say("stop")
        published = json.loads(camera.read_line())
        for viewer in viewers:
            viewer.say("stop")
        seen = [json.loads(viewer.read_line()) for viewer in viewers]
        said = [process.errors() for process in (camera, *viewers, host.driver, host.media)]
    print("", HEAD, *(trace.row() for trace in traces), published, *seen, sep="\n")

    assert published["frames"] > 0.9 * RATE_HZ * SECONDS, "the machine was too busy for a camera"
    assert published["lease_losses"] == 0
    for viewer in seen:
        # Every frame, each whole: what was not delivered would stand in the drops, or nowhere.
        assert viewer["delivered"] == published["frames"], viewer
        assert (viewer["drops"], viewer["overwritten"], viewer["wrong"], viewer["reconnects"]) == (0,) * 4
    check_flat(traces)
    assert said == [""] * 5, said
