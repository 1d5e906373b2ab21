# A plain PyTorch training loop of the same graph: what the engine is measured against. Modules,
# autograd and AdamW as PyTorch ships them, the loss written as one would. Reads a JSON object from
# standard input (graph, image_size, batch, steps, warmup, device, precision, threads, truths, lr,
# weight_decay), and prints one. Of a graph with masks every object is the ellipse in its box. Needs a
# Python with torch (Debian: python3-torch).

import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """The graph's nodes in order; only convolutions, transposed ones too, have weights."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph
        self.parts = nn.ModuleDict()
        nodes = graph["nodes"]
        for at, node in enumerate(nodes):
            if node["op"] == "conv":
                inputs, kernel = nodes[node["input"]]["channels"], node["kernel"]
                shape = dict(stride=node["step"], padding=kernel // 2, groups=node["groups"])
                conv = nn.Conv2d(inputs, node["channels"], kernel, bias=not node["normalized"], **shape)
                parts = [conv]
                if node["normalized"]:
                    parts.append(nn.BatchNorm2d(node["channels"], eps=1e-3, momentum=0.03))
                if node["silu"]:
                    parts.append(nn.SiLU(inplace=True))
                self.parts[str(at)] = nn.Sequential(*parts)
            elif node["op"] == "conv_transpose":
                inputs = nodes[node["input"]]["channels"]
                self.parts[str(at)] = nn.ConvTranspose2d(inputs, node["channels"], 2, stride=2)
        classes = graph["classes"]
        for branch in (graph["o2m"], graph["o2o"]):
            for at, stride in zip(branch["cls"], (8, 16, 32)):
                self.parts[str(at)][0].bias.data[:] = math.log(5 / classes / (640 / stride) ** 2)
            for at in branch["box"]:
                self.parts[str(at)][0].bias.data[:] = 2.0

    def forward(self, images):
        maps = []
        for at, node in enumerate(self.graph["nodes"]):
            op = node["op"]
            source = maps[node["input"]] if "input" in node else None
            if op == "input":
                out = images
            elif op in ("conv", "conv_transpose"):
                out = self.parts[str(at)](source)
            elif op == "add":
                out = maps[node["inputs"][0]] + maps[node["inputs"][1]]
            elif op == "concat":
                out = torch.cat([maps[one] for one in node["inputs"]], 1)
            elif op == "slice":
                out = source[:, node["from"] : node["to"]]
            elif op == "max_pool":
                out = F.max_pool2d(source, node["kernel"], 1, node["kernel"] // 2)
            elif op == "upsample":
                out = F.interpolate(source, scale_factor=node["factor"])
            elif op in ("attention", "values"):
                out = attend(source, node, op == "values")
            elif op == "detach":
                out = source.detach()
            maps.append(out)
        take = lambda branch: [
            torch.cat([maps[one].flatten(2) for one in branch[part]], 2).transpose(1, 2).float()
            for part in ("box", "cls", "mask")
            if part in branch
        ]
        sizes = [maps[one].shape[-2:] for one in self.graph["o2m"]["box"]]
        whole = [maps[self.graph[part]].float() for part in ("prototypes", "semantic") if part in self.graph]
        return take(self.graph["o2m"]), take(self.graph["o2o"]), sizes, whole


def attend(source, node, only_values):
    count, _, height, width = source.shape
    heads, key, value = node["heads"], node["key"], node["value"]
    parts = source.reshape(count, heads, 2 * key + value, height * width)
    query, keys, values = parts.split([key, key, value], 2)
    if not only_values:
        weights = (query.transpose(-2, -1) @ keys * key**-0.5).softmax(-1)
        values = values @ weights.transpose(-2, -1)
    return values.reshape(count, heads * value, height, width)


def anchors_of(sizes, device):
    points, strides = [], []
    for (height, width), stride in zip(sizes, (8, 16, 32)):
        y, x = torch.meshgrid(
            torch.arange(height, device=device) + 0.5,
            torch.arange(width, device=device) + 0.5,
            indexing="ij",
        )
        points.append(torch.stack([x, y], -1).reshape(-1, 2) * stride)
        strides.append(torch.full((height * width, 1), float(stride), device=device))
    return torch.cat(points), torch.cat(strides)


def ciou(one, other):
    eps = 1e-7
    w1, h1 = one[..., 2] - one[..., 0], one[..., 3] - one[..., 1] + eps
    w2, h2 = other[..., 2] - other[..., 0], other[..., 3] - other[..., 1] + eps
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    inner = (low[..., 2:] - high[..., :2]).clamp(min=0)
    inter = inner[..., 0] * inner[..., 1]
    iou = inter / (w1 * h1 + w2 * h2 - inter + eps)
    hull = high[..., 2:] - low[..., :2]
    diagonal = (hull**2).sum(-1) + eps
    shift = ((other[..., :2] + other[..., 2:] - one[..., :2] - one[..., 2:]) ** 2).sum(-1) / 4
    skew = 4 / math.pi**2 * (torch.atan(w2 / h2) - torch.atan(w1 / h1)) ** 2
    with torch.no_grad():
        alpha = skew / (skew - iou + 1 + eps)
    return iou - shift / diagonal - alpha * skew


@torch.no_grad()
def assign(boxes, scores, truths, points, first, last):
    valid = truths[..., 0] >= 0
    kinds, corners = truths[..., 0].clamp(min=0).long(), truths[..., 1:]
    centres, sides = (corners[..., :2] + corners[..., 2:]) / 2, corners[..., 2:] - corners[..., :2]
    sides = torch.where(sides < 8, torch.full_like(sides, 16), sides)
    low, high = (centres - sides / 2).unsqueeze(2), (centres + sides / 2).unsqueeze(2)
    inside = torch.minimum(points - low, high - points).amin(-1).gt(1e-9) & valid.unsqueeze(-1)
    overlap = ciou(corners.unsqueeze(2), boxes.unsqueeze(1)).clamp(min=0) * inside
    picked = scores.transpose(1, 2).gather(
        1, kinds.unsqueeze(-1).expand(-1, -1, scores.shape[1])
    )
    metric = picked.sqrt() * overlap**6 * inside
    best, places = metric.topk(min(first, metric.shape[-1]), -1)
    chosen = torch.zeros_like(metric).scatter_(-1, places, (best > 1e-9).float())
    contested = chosen.sum(1, keepdim=True) > 1
    winner = torch.zeros_like(chosen).scatter_(1, overlap.argmax(1, keepdim=True), 1.0)
    chosen = torch.where(contested, winner, chosen)
    if last < first:
        best, places = (metric * chosen).topk(last, -1)
        chosen = torch.zeros_like(metric).scatter_(-1, places, (best > 1e-9).float()) * chosen
    found, owner = chosen.sum(1) > 0, chosen.argmax(1)
    metric = metric * chosen
    weight = metric * (overlap * chosen).amax(-1, True) / (metric.amax(-1, True) + 1e-9)
    target = torch.zeros_like(scores).scatter_(
        2, kinds.gather(1, owner).unsqueeze(-1), (weight.amax(1) * found).unsqueeze(-1)
    )
    return corners.gather(1, owner.unsqueeze(-1).expand(-1, -1, 4)), target, found, owner


def masks_of(truths, side, device):
    """The ellipse in each box, at a cell of four pixels: [images, objects, cells, cells]."""
    centres = (torch.arange(side // 4, device=device) + 0.5) * 4
    box = truths[..., 1:, None]
    x = (2 * centres - box[..., 0, :] - box[..., 2, :]) / (box[..., 2, :] - box[..., 0, :])
    y = (2 * centres - box[..., 1, :] - box[..., 3, :]) / (box[..., 3, :] - box[..., 1, :])
    return (x.square().unsqueeze(2) + y.square().unsqueeze(3) < 1).float()


def mask_loss(weights, prototypes, masks, goal, found, owner):
    total = 0
    cells = masks.shape[-1]
    centres = (torch.arange(cells, device=masks.device) + 0.5) * 4
    for image in range(len(weights)):
        at = found[image]
        logits = torch.einsum("pc,chw->phw", weights[image][at], prototypes[image])
        entropy = F.binary_cross_entropy_with_logits(
            logits, masks[image][owner[image][at]], reduction="none"
        )
        x1, y1, x2, y2 = goal[image][at].T[..., None]
        across, down = (centres >= x1) & (centres < x2), (centres >= y1) & (centres < y2)
        area = ((x2 - x1) * (y2 - y1) / 16).squeeze(1).clamp(min=1)
        inside = across.unsqueeze(1) & down.unsqueeze(2)
        total = total + ((entropy * inside).sum((1, 2)) / area).sum()
    return total / found.sum().clamp(min=1)


def semantic_loss(logits, truths, masks):
    target = torch.zeros_like(logits)
    covered = F.max_pool2d(masks, 2)
    for image, own in enumerate(truths):
        target[image].index_add_(0, own[:, 0].long(), covered[image])
    target.clamp_(max=1)
    entropy = F.binary_cross_entropy_with_logits(logits, target)
    likely = logits.sigmoid()
    shared, both = (likely * target).sum((2, 3)), (likely + target).sum((2, 3))
    return (entropy + (1 - (2 * shared + 1) / (both + 1)).mean()) / 2


def branch_loss(maps, truths, sizes, side, first, last, prototypes=None, masks=None):
    distances, logits = maps[:2]
    points, strides = anchors_of(sizes, logits.device)
    reach = distances * strides
    boxes = torch.cat([points - reach[..., :2], points + reach[..., 2:]], -1)
    goal, target, found, owner = assign(boxes, logits.sigmoid(), truths, points, first, last)
    total = target.sum().clamp(min=1)
    cls = F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / total
    weight = target.sum(-1) * found
    box = ((1 - ciou(boxes, goal)) * weight).sum() / total
    wanted = torch.cat([points - goal[..., :2], goal[..., 2:] - points], -1)
    dfl = ((reach - wanted).abs().mean(-1) / side * weight).sum() / total
    loss = 7.5 * box + 0.5 * cls + 1.5 * dfl
    if prototypes is not None:
        loss = loss + 7.5 * mask_loss(maps[2], prototypes, masks, goal, found, owner)
    return loss * logits.shape[0]


def main():
    given = json.load(sys.stdin)
    device = torch.device(given["device"])
    torch.set_num_threads(given["threads"])
    torch.manual_seed(0)
    count, side = given["batch"], given["image_size"]
    net = Net(given["graph"]).to(device).train()
    if device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=given["lr"], betas=(0.9, 0.999), weight_decay=given["weight_decay"]
    )
    images = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1)).to(device)
    truths = torch.tensor(given["truths"], dtype=torch.float32).to(device)
    has_masks = "prototypes" in given["graph"]
    masks = masks_of(truths, side, device) if has_masks else None
    bf16 = given["precision"] == "bf16"
    marks = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    # A GPU is waited for before and after all steps alone, so its steps have no times by part.
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    losses, began, cpu = [], 0.0, 0.0
    for step in range(given["warmup"] + given["steps"]):
        if step == given["warmup"]:
            sync()
            began, marks = time.perf_counter(), dict.fromkeys(marks, 0.0)
            cpu = time.process_time()
        at = [time.perf_counter()]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            o2m, o2o, sizes, whole = net(images)
        shared = [whole[0], masks] if has_masks else []
        apart = [whole[0].detach(), masks] if has_masks else []
        many = branch_loss(o2m, truths, sizes, side, 10, 10, *shared)
        one = branch_loss(o2o, truths, sizes, side, 7, 1, *apart)
        if has_masks:
            many = many + 7.5 * count * semantic_loss(whole[1], truths, masks)
        loss = 0.8 * many + 0.2 * one
        at.append(time.perf_counter())
        loss.backward()
        at.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        at.append(time.perf_counter())
        for name, start, end in zip(marks, at, at[1:]):
            marks[name] += end - start
        losses.append(loss.detach() / count)
    sync()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    values = [loss.item() for loss in losses]
    report = {"torch": torch.__version__, "seconds": seconds, "parts": marks, "losses": values}
    print(json.dumps({**report, "memoryBytes": memory, "cpuSeconds": cpu}))


main()
