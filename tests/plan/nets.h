/* SPDX-License-Identifier: Apache-2.0 */
/* Nets of the literature, layer by layer, for the tables of docs/theses.md. */
#ifndef RB_TESTS_PLAN_NETS_H
#define RB_TESTS_PLAN_NETS_H

#include "plan/partition/hypergraph_model.h"

enum { NETS_LAYERS = 32 };

struct net {
    const char *name;
    struct rb_hypergraph_layer layers[NETS_LAYERS];
    uint32_t n;
    double parameters;
};

/* Published sizes: 224 x 224 and 32 x 32 pixels; AlexNet without or with its groups; the 3a block
 * of GoogLeNet between two convolutions; ResNet-18, whose sums are layers too. */
void net_vgg16(struct net *net);
void net_vgg16_cifar(struct net *net);
void net_alexnet(struct net *net, int grouped);
void net_cifar_quick(struct net *net);
void net_dense(struct net *net);
void net_inception(struct net *net);
void net_resnet18(struct net *net);

#endif
