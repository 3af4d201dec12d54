"""The CPU image decoder against the real one: `fn.decoders.image` and `fn.experimental.decoders.image` of DALI.

The first is older, disregards EXIF and has no argument for it; the second turns images by default. They decode most files
to the same pixels, which are ours, too, bit by bit. The tables below hold every file for which something differs.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from nvidia.dali import fn, types  # noqa: E402

from dali_like.errors import DecodeError  # noqa: E402
from dali_like.images.decode import decode_image  # noqa: E402
from dali_like.types import ANY_DATA, GRAY, DALIImageType, YCbCr  # noqa: E402
from tests.image_files import FILES, IRREGULAR_JPEGS, ORIENTED_FILES, as_file, image_file  # noqa: E402

pytestmark = pytest.mark.peers

OLD, NEW = fn.decoders.image, fn.experimental.decoders.image

# Where `fn.decoders.image` is not followed for any output type, but `fn.experimental.decoders.image` is.
ONLY_AS_NEW = {
    "webp_lossy_alpha": "the old operator refuses the extended file format, which every lossy WebP with alpha has",
    "tiff_cmyk": "the old operator takes the inks for red, green and blue",
    "tiff_rgb_planes": "the old operator takes three rows of red for a row of colour",
    "tiff_rgb_bigtiff": "the old operator does not know BigTIFF",
    "tiff_gray_inverted": "the old operator delivers the negative",
    "jpeg2000_codestream": "the old operator knows JP2 files only",
    "pnm_gray_comment": "the old operator expects comments in lines of their own",
}
# Where the operators cannot be followed, for some output types.
NOT_AS_DALI = {
    ("bmp_rgb_32", ANY_DATA): "both fail; the fourth byte of these files is padding, and the image has three channels",
    ("png_rgba_16", ANY_DATA): "the old operator delivers every other byte of the 16-bit samples",
    ("tiff_rgba_16", ANY_DATA): "likewise",
    **{
        ("tiff_rgba_16", output_type): "the old operator blends the colours with alpha, though not those of 8-bit files"
        for output_type in DALIImageType
        if output_type != ANY_DATA
    },
    **{
        ("tiff_gray_alpha", output_type): "the old operator fails, the new one takes alpha for green; ANY_DATA has two "
        "channels there, where that of a PNG with gray and alpha has one"
        for output_type in DALIImageType
    },
    ("jpeg_cmyk_plain", YCbCr): "the old operator takes the inks for inverted on the way to YCbCr, though not for RGB",
    ("tiff_gray", YCbCr): "the old operator makes Cb and Cr 255, which is not a gray",
    ("tiff_cmyk", ANY_DATA): "both deliver the inks, where they deliver RGB of a JPEG with inks",
}
# Where rounding differs.
BOUNDS = {
    ("tiff_rgb_jpeg", GRAY): 1,  # DALI makes gray of RGB in floating point, OpenCV in fixed point
    ("jpeg_cmyk", YCbCr): 2,  # DALI uses one conversion of CMYK for RGB and another one on the way to YCbCr
    ("jpeg_ycck", YCbCr): 2,
}


class Refused(Exception):
    """DALI raised."""


def dali_decodes(operator, encoded, output_type, **arguments):
    pipeline = dali.Pipeline(
        batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False
    )
    with pipeline:
        source = fn.external_source(lambda: [np.array(encoded)])
        pipeline.set_outputs(operator(source, device="cpu", output_type=types.DALIImageType(int(output_type)), **arguments))
    pipeline.build()
    try:
        (output,) = pipeline.run()
    except RuntimeError as error:
        raise Refused(str(error)) from None
    return np.array(output[0])


def assert_close(ours, theirs, bound=0, case=""):
    assert ours.shape == theirs.shape, case
    difference = np.abs(ours.astype(int) - theirs).max()
    assert difference <= bound, case


@pytest.mark.parametrize("name", [name for name in FILES if name not in ONLY_AS_NEW])
def test_pixels_are_the_same_as_of_decoders_image(name):
    for output_type in DALIImageType:
        if (name, output_type) not in NOT_AS_DALI:
            theirs = dali_decodes(OLD, image_file(name), output_type)
            ours = decode_image(image_file(name), output_type, False)
            assert_close(ours, theirs, BOUNDS.get((name, output_type), 0), str(output_type))


@pytest.mark.parametrize("name", ONLY_AS_NEW)
def test_pixels_are_the_same_as_of_experimental_decoders_image(name):
    for output_type in DALIImageType:
        if (name, output_type) not in NOT_AS_DALI:
            theirs = dali_decodes(NEW, image_file(name), output_type)
            assert_close(decode_image(image_file(name), output_type), theirs, 0, str(output_type))


@pytest.mark.parametrize(("name", "output_type"), NOT_AS_DALI)
def test_still_not_as_dali(name, output_type):
    """Goes red when a newer DALI decodes these as we do, so that the table can shrink."""
    try:
        theirs = dali_decodes(OLD, image_file(name), output_type)
    except Refused:
        return
    ours = decode_image(image_file(name), output_type)
    assert theirs.shape != ours.shape or not np.array_equal(theirs, ours)


def test_rounding_of_the_experimental_decoder():
    """It scales 16-bit samples to 8 bits, where the other one, and we, drop the lower half: off by one at most."""
    for name in ("png_gray_16", "png_rgb_16", "png_rgba_16", "tiff_rgb_16", "tiff_rgba_16"):
        for output_type in DALIImageType:
            theirs = dali_decodes(NEW, image_file(name), output_type)
            assert_close(decode_image(image_file(name), output_type), theirs, 1, f"{name} {output_type}")


# With these, the new operator fails or ends the process with a segmentation fault, for any orientation.
CRASHES_NEW = {("jpeg_gray", ANY_DATA), ("jpeg_cmyk", ANY_DATA)}
# The new operator does not turn these as it turns everything else.
NOT_TURNED_AS_BY_DALI = {
    **{("webp", output_type): "it exchanges the sides, but does not move the pixels" for output_type in DALIImageType},
    ("png_rgba", ANY_DATA): "likewise",
    **{
        ("jpeg_cmyk", output_type): "the pixels are neither those of the file nor those of the file turned"
        for output_type in DALIImageType
        if output_type != ANY_DATA
    },
    **{
        ("tiff_rgba", output_type): "it blends the colours with alpha, which it does not of files that need no turning"
        for output_type in DALIImageType
    },
}


@pytest.mark.parametrize("kind", ORIENTED_FILES)
def test_orientation(kind):
    """The new operator honours EXIF in JPEG and PNG, and the tag of TIFF; so does `adjust_orientation`."""
    bound = 1 if kind in {"tiff_rgb_16", "jpeg_cmyk"} else 0
    for orientation, output_type, adjust in itertools.product(range(1, 9), DALIImageType, (True, False)):
        case = kind, output_type
        if case in CRASHES_NEW or (adjust and orientation > 1 and case in NOT_TURNED_AS_BY_DALI):
            continue
        data = as_file(ORIENTED_FILES[kind](orientation))
        theirs = dali_decodes(NEW, data, output_type, adjust_orientation=adjust)
        assert_close(decode_image(data, output_type, adjust), theirs, bound, f"{orientation} {output_type} {adjust}")


@pytest.mark.parametrize(("kind", "output_type"), NOT_TURNED_AS_BY_DALI)
def test_still_not_turned_as_by_dali(kind, output_type):
    """Goes red when a newer DALI turns these, so that the table can shrink."""
    data = as_file(ORIENTED_FILES[kind](6))
    theirs, ours = dali_decodes(NEW, data, output_type), decode_image(data, output_type)
    assert theirs.shape != ours.shape or not np.array_equal(theirs, ours)


@pytest.mark.parametrize("kind", ["jpeg", "png", "tiff"])
def test_decoders_image_disregards_exif(kind):
    """But for TIFF, where it mirrors and fails to turn; there, False means as stored for us, as it does for the new one."""
    for orientation in range(2, 9):
        data = as_file(ORIENTED_FILES[kind](orientation))
        ours = decode_image(data, adjust_orientation=False)
        if kind != "tiff":
            np.testing.assert_array_equal(dali_decodes(OLD, data, DALIImageType.RGB), ours)
        elif orientation <= 4:
            np.testing.assert_array_equal(dali_decodes(OLD, data, DALIImageType.RGB), decode_image(data))
        else:
            with pytest.raises(Refused):
                dali_decodes(OLD, data, DALIImageType.RGB)


@pytest.mark.parametrize("name", ["jpeg_420", "jpeg_progressive", "png_rgb", "webp_lossy", "bmp_rgb", "tiff_rgb_lzw"])
def test_truncated_files_are_refused_by_both(name):
    data = image_file(name)
    for kept in (20, data.size // 10, data.size // 2, data.size - 300, data.size - 12, data.size - 2):
        with pytest.raises(Refused):
            dali_decodes(OLD, data[:kept], DALIImageType.RGB)
        with pytest.raises(DecodeError):
            decode_image(data[:kept])


def test_bytes_left_over_in_a_jpeg_are_accepted_by_both():
    data = image_file("jpeg_gray").tobytes()
    padded = as_file(data[:-2] + bytes([1] * 14) + data[-2:])
    np.testing.assert_array_equal(decode_image(padded), dali_decodes(OLD, padded, DALIImageType.RGB))


# libjpeg takes these markers for a sign of lost data, and leaves blocks gray. All data are there.
GRAY_IN_DALI = {"restart markers of one number"}


@pytest.mark.parametrize("kind", IRREGULAR_JPEGS)
def test_jpegs_with_harmless_irregularities_are_accepted_by_both(kind):
    name, change = IRREGULAR_JPEGS[kind]
    data = as_file(change(image_file(name).tobytes()))
    ours = decode_image(data)
    is_equal = np.array_equal(ours, dali_decodes(OLD, data, DALIImageType.RGB))
    assert is_equal == (kind not in GRAY_IN_DALI)
    np.testing.assert_array_equal(ours, decode_image(image_file(name)))


def test_damaged_jpeg_is_refused_where_dali_delivers_garbage():
    data = bytearray(image_file("jpeg_progressive").tobytes())
    middle = len(data) // 2
    data[middle : middle + 200] = b"\xff\0" * 100
    damaged = as_file(bytes(data))
    assert dali_decodes(OLD, damaged, DALIImageType.RGB).shape == decode_image(image_file("jpeg_progressive")).shape
    with pytest.raises(DecodeError):
        decode_image(damaged)
