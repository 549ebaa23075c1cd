# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch in the manner of ResNet-18 and of BERT, small, with fixed random weights."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is in the extra of that name")
nn: Any = torch.nn


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut, as torchvision has them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Eight blocks after a stem, an eighth as wide as ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 8, 1))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
        self.layer3 = nn.Sequential(BasicBlock(16, 32, 2), BasicBlock(32, 32, 1))
        self.layer4 = nn.Sequential(BasicBlock(32, 64, 2), BasicBlock(64, 64, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    """Self-attention of four heads, spelled out, with a mask that is added to the scores."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (
            layer(x).unflatten(-1, (4, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention and two dense layers with GELU, each with a layer normalisation behind it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(width), nn.LayerNorm(width)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.output(nn.functional.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """Embeddings, two layers and a pooler, 64 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(100, 64), nn.Embedding(32, 64)
        self.norm = nn.LayerNorm(64)
        self.layers = nn.ModuleList([EncoderLayer(64), EncoderLayer(64)])
        self.pooler = nn.Linear(64, 64)

    def forward(self, ids: Any, attention_mask: Any) -> dict[str, Any]:
        x = self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1])))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return {"last_hidden_state": x, "pooler_output": torch.tanh(self.pooler(x[:, 0]))}


def resnet() -> tuple[Any, tuple[Any, ...]]:
    """Return a ResNet whose normalisations have seen data, and an input."""
    torch.manual_seed(18)
    model = ResNet18()
    with torch.no_grad():
        model(torch.randn(16, 3, 64, 64))
    return model.eval(), (torch.randn(2, 3, 64, 64),)


def bert() -> tuple[Any, tuple[Any, ...]]:
    """Return a BERT, and ids and mask of two sentences, the second one shorter."""
    torch.manual_seed(19)
    model = Bert().eval()
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 9:] = 0
    return model, (torch.randint(0, 100, (2, 16)), mask)


class Small(nn.Module):
    """A dense layer and Relu."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.dense(x))


def small() -> Any:
    """Return a small module with fixed random weights."""
    torch.manual_seed(4)
    return Small().eval()
