/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/nets.h"

#include <string.h>

/* The input of the first layer: channels that no layer sends. */
static uint32_t channels(const struct net *net, uint32_t image)
{
    return net->n ? net->layers[net->n - 1].filters : image;
}

static void add(struct net *net, struct rb_hypergraph_layer layer, double parameters)
{
    if (net->n) {
        layer.inputs[0] = net->n - 1;
        layer.n_inputs = 1;
    }
    net->layers[net->n++] = layer;
    net->parameters += parameters;
}

static void conv(struct net *net, uint32_t filters, uint32_t groups, uint32_t kernel, uint32_t side,
                 uint32_t pooled)
{
    uint32_t in = channels(net, 3);

    add(net, rb_hypergraph_convolution(filters, groups, in, kernel, side * side, pooled * pooled),
        filters * ((double)kernel * kernel * in / groups + 1));
}

/* inputs: numbers of the layer in front, pixels included. */
static void dense(struct net *net, uint32_t neurons, uint32_t inputs)
{
    add(net, rb_hypergraph_convolution(neurons, 1, inputs, 1, 1, 1), neurons * (inputs + 1.0));
}

static void vgg(struct net *net, uint32_t side)
{
    static const uint32_t blocks[5][2] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};

    for (int b = 0; b < 5; b++, side /= 2)
        for (uint32_t i = 0; i < blocks[b][1]; i++)
            conv(net, blocks[b][0], 1, 3, side, i + 1 < blocks[b][1] ? side : side / 2);
}

void net_vgg16(struct net *net)
{
    *net = (struct net){.name = "VGG-16, 224"};
    vgg(net, 224);
    dense(net, 4096, 512 * 49);
    dense(net, 4096, 4096);
    dense(net, 1000, 4096);
}

void net_vgg16_cifar(struct net *net)
{
    *net = (struct net){.name = "VGG-16, CIFAR"};
    vgg(net, 32);
    dense(net, 512, 512);
    dense(net, 512, 512);
    dense(net, 10, 512);
}

void net_alexnet(struct net *net, int grouped)
{
    uint32_t groups = grouped ? 2 : 1;

    *net = (struct net){.name = grouped ? "AlexNet, grouped" : "AlexNet, 224"};
    conv(net, 96, 1, 11, 55, 27);
    conv(net, 256, groups, 5, 27, 13);
    conv(net, 384, 1, 3, 13, 13);
    conv(net, 384, groups, 3, 13, 13);
    conv(net, 256, groups, 3, 13, 6);
    dense(net, 4096, 256 * 36);
    dense(net, 4096, 4096);
    dense(net, 1000, 4096);
}

void net_dense(struct net *net)
{
    *net = (struct net){.name = "dense 3072-4x4096-10"};
    dense(net, 4096, 3072);
    for (int i = 0; i < 3; i++)
        dense(net, 4096, 4096);
    dense(net, 10, 4096);
}

void net_cifar_quick(struct net *net)
{
    *net = (struct net){.name = "cifar-quick"};
    conv(net, 32, 1, 5, 32, 16);
    conv(net, 32, 1, 5, 16, 8);
    conv(net, 64, 1, 5, 8, 4);
    dense(net, 64, 64 * 16);
    dense(net, 10, 64);
}

/* A layer that reads layer `from`. */
static uint32_t branch(struct net *net, uint32_t from, uint32_t filters, uint32_t kernel)
{
    uint32_t in = net->layers[from].filters;

    net->layers[net->n] = rb_hypergraph_convolution(filters, 1, in, kernel, 28 * 28, 28 * 28);
    net->layers[net->n].inputs[0] = from;
    net->layers[net->n].n_inputs = 1;
    net->parameters += filters * ((double)kernel * kernel * in + 1);
    return net->n++;
}

/* 192 channels in front, 256 behind, read by a convolution of 128. */
void net_inception(struct net *net)
{
    static const uint32_t channels_out = 256;
    struct rb_hypergraph_layer last;
    uint32_t ends[4];

    *net = (struct net){.name = "Inception 3a"};
    net->layers[net->n] = rb_hypergraph_convolution(192, 1, 64, 3, 56 * 56, 28 * 28);
    net->parameters = 192 * (9 * 64 + 1.0);
    net->n = 1;
    ends[0] = branch(net, 0, 64, 1);
    ends[1] = branch(net, branch(net, 0, 96, 1), 128, 3);
    ends[2] = branch(net, branch(net, 0, 16, 1), 32, 5);
    ends[3] = branch(net, 0, 32, 1);
    last = rb_hypergraph_convolution(128, 1, channels_out, 1, 28 * 28, 28 * 28);
    memcpy(last.inputs, ends, sizeof ends);
    last.n_inputs = 4;
    net->layers[net->n++] = last;
    net->parameters += 128 * (channels_out + 1.0);
}

/* A convolution of a ResNet; without a bias, with a norm. */
static uint32_t normed(struct net *net, uint32_t from, uint32_t filters, uint32_t kernel,
                       uint32_t side)
{
    uint32_t in = net->layers[from].filters;

    net->layers[net->n] =
        rb_hypergraph_convolution(filters, 1, in, kernel, side * side, side * side);
    net->layers[net->n].inputs[0] = from;
    net->layers[net->n].n_inputs = 1;
    net->parameters += filters * ((double)kernel * kernel * in + 2);
    return net->n++;
}

/* The sum of a and b, filter by filter; `words` of each filter go on. */
static uint32_t sum(struct net *net, uint32_t a, uint32_t b, double words)
{
    net->layers[net->n] = (struct rb_hypergraph_layer){
        .filters = net->layers[a].filters, .words = words, .joins = {a, b}, .n_joins = 2};
    return net->n++;
}

void net_resnet18(struct net *net)
{
    uint32_t x = 0, side = 56;

    *net = (struct net){.name = "ResNet-18, 224"};
    net->layers[net->n++] = rb_hypergraph_convolution(64, 1, 3, 7, 112 * 112, side * side);
    net->parameters = 64 * (49 * 3 + 2.0);
    for (uint32_t b = 0; b < 8; b++) {
        uint32_t filters = 64u << b / 2, pixels, y;
        bool shrinks = b && b % 2 == 0;

        side /= shrinks ? 2 : 1;
        pixels = side * side;
        y = normed(net, normed(net, x, filters, 3, side), filters, 3, side);
        x = sum(net, y, shrinks ? normed(net, x, filters, 1, side) : x, b < 7 ? pixels : 1);
    }
    net->layers[net->n] = rb_hypergraph_convolution(1000, 1, 512, 1, 1, 1);
    net->layers[net->n].inputs[0] = x;
    net->layers[net->n++].n_inputs = 1;
    net->parameters += 1000 * 513.0;
}
