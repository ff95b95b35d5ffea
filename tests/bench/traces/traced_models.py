#!/usr/bin/env python3
"""The training that trace.py traces: a model of the transformers package, or one of HOME's on images as CIFAR-10 has them.

    traced_models.py MODEL --batch N
"""
import argparse
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workloads"))


def language(make, length, vocab):
    def loss(model, batch):
        tokens = torch.randint(0, vocab, (batch, length))
        return model(input_ids=tokens, labels=tokens).loss
    return make(), loss


def images(make, size, classes=1000):
    model = make()

    def loss(model, batch):
        answers = model(torch.randn(batch, 3, size, size))
        return F.cross_entropy(getattr(answers, "logits", answers), torch.randint(0, classes, (batch,)))
    return model, loss


def gpt2_xl():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(n_embd=1600, n_layer=48, n_head=25, use_cache=False)
    return language(lambda: GPT2LMHeadModel(config), 1024, config.vocab_size)


def llama_7b():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(use_cache=False)  # its defaults are the 7B's
    return language(lambda: LlamaForCausalLM(config), 2048, config.vocab_size)


def vit(hidden, layers, heads, patch):
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                       intermediate_size=4 * hidden, patch_size=patch, num_labels=1000)
    return images(lambda: ViTForImageClassification(config), 224)


def resnet_152():
    from transformers import ResNetConfig, ResNetForImageClassification
    config = ResNetConfig(depths=[3, 8, 36, 3], num_labels=1000)
    return images(lambda: ResNetForImageClassification(config), 224)


def whisper_large():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    config = WhisperConfig(d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20,
                           decoder_attention_heads=20, encoder_ffn_dim=5120, decoder_ffn_dim=5120, use_cache=False)

    def loss(model, batch):
        labels = torch.randint(0, config.vocab_size, (batch, 448))
        return model(input_features=torch.randn(batch, 80, 3000), labels=labels).loss
    return WhisperForConditionalGeneration(config), loss


def bert_base():
    from transformers import BertConfig, BertForSequenceClassification
    config = BertConfig(num_labels=2)

    def loss(model, batch):
        return model(input_ids=torch.randint(0, config.vocab_size, (batch, 512)),
                     labels=torch.randint(0, 2, (batch,))).loss
    return BertForSequenceClassification(config), loss


# HOME's, on images of 32 x 32.


def conv(inputs, outputs, size=3, stride=1):
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]


def vgg16():
    layers, inputs = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += conv(inputs, width)
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return images(lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)), 32, 10)


def plain_20():
    layers, inputs = conv(3, 16), 16
    for stage in range(3):
        for block in range(6):
            layers += conv(inputs, 16 << stage, stride=2 if stage and block == 0 else 1)
            inputs = 16 << stage
    return images(lambda: nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), 32, 10)


def mobilenet():
    from mobilenet import MobileNet
    return images(lambda: MobileNet(1.0), 32, 10)


def resnet_20():
    from resnet_cifar import ResNet
    return images(lambda: ResNet(20, 16), 32, 10)


MODELS = {
    "gpt2-xl": gpt2_xl, "llama-7b": llama_7b, "vit-h": lambda: vit(1280, 32, 16, 14), "resnet-152": resnet_152,
    "whisper-large": whisper_large, "bert-base": bert_base, "vit-b": lambda: vit(768, 12, 12, 16),
    "mobilenet": mobilenet, "plain-20": plain_20, "vgg16": vgg16, "resnet-20": resnet_20,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    model, loss_of = MODELS[args.model]()
    make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[args.optimizer]
    optimizer = make(model.train().parameters(), 1e-4)
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss_of(model, args.batch).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
