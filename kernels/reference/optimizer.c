/* SPDX-License-Identifier: Apache-2.0 */
/* As in torch.optim, in double. */
#include "kernels/reference/reference.h"

#include <math.h>

void rb_reference_adamw(double *w, double *m, double *v, const double *g, size_t n, double lr,
                        double beta1, double beta2, double eps, double decay, int t)
{
    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * decay * w[i];
        m[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        w[i] -= lr / (1 - pow(beta1, t)) * m[i] / (sqrt(v[i]) / sqrt(1 - pow(beta2, t)) + eps);
    }
}

void rb_reference_sgd(double *w, double *m, const double *g, size_t n, double lr, double momentum,
                      double decay, bool nesterov, bool first)
{
    for (size_t i = 0; i < n; i++) {
        double d = g[i] + decay * w[i];

        if (momentum != 0) {
            m[i] = first ? d : momentum * m[i] + d;
            d = nesterov ? d + momentum * m[i] : m[i];
        }
        w[i] -= lr * d;
    }
}
