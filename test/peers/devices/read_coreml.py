"""coremltools reads Core ML packages, and its reading, computed in NumPy, gives our rows."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 4)[0] + "/runners/python")
from outcomes import check, expect  # noqa: E402
from detect import rows_of_heads  # noqa: E402
from same import objects_again, same_rows  # noqa: E402

warnings.simplefilter("ignore")
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.frontend.milproto import load as milproto  # noqa: E402


def opened(file):
    """The package as coremltools has it; Apple's runtime is on macOS alone."""
    return ct.models.MLModel(file["path"], skip_model_load=True)


def program_of(model, weights=None):
    """The loader of ML programs checks names, types, shapes and every operation's inputs."""
    spec = model.get_spec()
    return milproto.load(spec, spec.specificationVersion, weights or model.weights_dir)


def described(file):
    model = opened(file)
    spec = model.get_spec()
    expect(spec.WhichOneof("Type") == "mlProgram", "no ML program")
    image = spec.description.input[0].type.imageType
    expect([image.height, image.width] == file["size"], f"an image of {image}")
    said = dict(model.user_defined_metadata)
    expect(list(json.loads(said["names"]).values()) == file["classes"], said["names"])
    operations = program_of(model).functions["main"].operations
    return f"{len(operations)} operations, specification {spec.specificationVersion}"


def quantized(file):
    """Weights as int8 by coremltools, and the result saved and opened."""
    model = opened(file)
    how = ct.optimize.coreml.OpLinearQuantizerConfig(mode="linear_symmetric")
    small = ct.optimize.coreml.linear_quantize_weights(
        model, ct.optimize.coreml.OptimizationConfig(how)
    )
    path = Path(file["path"] + ".int8.mlpackage")
    shutil.rmtree(path, ignore_errors=True)
    small.save(str(path))
    again = ct.models.MLModel(str(path), skip_model_load=True)
    program_of(again)

    def size(folder):
        return sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())

    share = size(path) / size(file["path"])
    expect(share < 0.7, f"it takes {share:.0%} of the bytes")
    return f"{share:.0%} of the bytes"


def damaged(file):
    """What proves that the loader looks: weights that are cut off are refused."""
    folder = Path(file["path"] + ".cut")
    folder.mkdir(exist_ok=True)
    whole = next(Path(file["path"]).rglob("weight.bin")).read_bytes()
    (folder / "weight.bin").write_bytes(whole[: len(whole) // 2])
    try:
        program_of(opened(file), str(folder))
    except Exception:
        return None
    raise AssertionError("half of the weights were taken")


def windows(x, kernel, stride, pad, fill=0.0):
    top, bottom, left, right = pad
    wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=(2, 3))
    return seen[:, :, :: stride[0], :: stride[1]]


def conv(x, weight, bias, strides, pad, groups, **_):
    seen = windows(x, weight.shape[2:], strides, pad)
    parts = [
        np.tensordot(one, taps, ([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        for one, taps in zip(np.split(seen, groups, 1), np.split(weight, groups, 0))
    ]
    return np.concatenate(parts, 1) + bias[None, :, None, None]


def conv_transpose(x, weight, bias, **_):
    """Kernel 2 and step 2 only: each cell becomes four."""
    spread = np.einsum("bihw,iokl->bohkwl", x, weight)
    batch, channels, height, _, width, _ = spread.shape
    return spread.reshape(batch, channels, 2 * height, 2 * width) + bias[None, :, None, None]


def max_pool(x, kernel_sizes, strides, pad, **_):
    return windows(x, tuple(kernel_sizes), strides, pad, -np.inf).max((4, 5))


def sliced(x, begin, end, begin_mask, end_mask, **_):
    bounds = zip(begin, end, begin_mask, end_mask)
    return x[tuple(slice(None if m else b, None if n else e) for b, e, m, n in bounds)]


def matmul(x, y, transpose_x, transpose_y, **_):
    x = x.swapaxes(-1, -2) if transpose_x else x
    return x @ (y.swapaxes(-1, -2) if transpose_y else y)


def softmax(x, axis, **_):
    shares = np.exp(x - x.max(int(axis), keepdims=True))
    return shares / shares.sum(int(axis), keepdims=True)


def sigmoid(x, **_):
    return 1 / (1 + np.exp(-x))


def upsample(x, scale_factor_height, scale_factor_width, **_):
    return x.repeat(int(scale_factor_height), 2).repeat(int(scale_factor_width), 3)


#: In single precision whatever the program says: casts do nothing.
OPERATIONS = {
    "add": lambda x, y, **_: x + y,
    "mul": lambda x, y, **_: x * y,
    "cast": lambda x, **_: x,
    "identity": lambda x, **_: x,
    "silu": lambda x, **_: x * sigmoid(x),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "matmul": matmul,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": max_pool,
    "slice_by_index": sliced,
    "upsample_nearest_neighbor": upsample,
    "concat": lambda values, axis, **_: np.concatenate(values, int(axis)),
    "reshape": lambda x, shape, **_: x.reshape([int(side) for side in shape]),
    "transpose": lambda x, perm, **_: x.transpose([int(axis) for axis in perm]),
    "split": lambda x, split_sizes, axis, **_: np.split(x, np.cumsum(split_sizes)[:-1], int(axis)),
}


def run(main, image):
    """What the program as coremltools parsed it computes, output by name."""
    values = {next(iter(main.inputs.values())).name: image}

    def value_of(one):
        if isinstance(one, (list, tuple)):
            return [value_of(part) for part in one]
        if one.name in values:
            return values[one.name]
        known = one.val
        return known.astype(np.float32) if getattr(known, "dtype", None) == np.float16 else known

    for operation in main.operations:
        if operation.op_type == "const":
            continue
        given = {key: value_of(one) for key, one in operation.inputs.items() if one is not None}
        result = OPERATIONS[operation.op_type](**given)
        results = result if operation.op_type == "split" else [result]
        for output, array in zip(operation.outputs, results):
            expect(tuple(output.shape) == array.shape, f"{output.name} is of {array.shape}")
            values[output.name] = array
    return {output.name: values[output.name] for output in main.outputs}


def computed(file):
    main = program_of(opened(file)).functions["main"]
    images = np.fromfile(file["images"], np.float32).reshape(-1, 1, 3, *file["size"])
    said = []
    for image, wanted in zip(images[:2], file["rows"]):
        outputs = run(main, image * 255)
        rows = rows_of_heads(outputs["boxes"][0], outputs["scores"][0])
        compare = same_rows if file["precision"] == "fp32" else objects_again
        said.append(compare(rows, np.array(wanted, np.float32)))
    return "; ".join(said)


for file in json.loads(Path(sys.argv[1]).read_text()):
    case = f"devices/coremltools/{file['name']}"
    check(f"{case}/description", lambda: described(file))
    check(f"{case}/quantized", lambda: quantized(file))
    check(f"{case}/damaged", lambda: damaged(file))
    check(f"{case}/rows", lambda: computed(file))
