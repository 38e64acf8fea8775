// SPDX-License-Identifier: Apache-2.0
// Makes what is on the page like new markup without taking away what is alike: what has the focus, is selected or was
// moved stays so.

function likeAttributes(old, fresh) {
    for (const { name } of [...old.attributes])
        if (!fresh.hasAttribute(name))
            old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
        if (old.getAttribute(name) !== value)
            old.setAttribute(name, value);
}

// The children of `fresh` may be moved.  An element with data-own is the page's own once it is there.
export function patch(old, fresh) {
    const [mine, theirs] = [[...old.childNodes], [...fresh.childNodes]];

    theirs.forEach((node, i) => {
        const at = mine[i];

        if (!at) {
            old.append(node);
        } else if (at.nodeName !== node.nodeName) {
            at.replaceWith(node);
        } else if (node.nodeType !== Node.ELEMENT_NODE) {
            if (at.data !== node.data)
                at.data = node.data;
        } else if (!at.hasAttribute('data-own')) {
            likeAttributes(at, node);
            patch(at, node);
        }
    });
    mine.slice(theirs.length).forEach((node) => node.remove());
}
