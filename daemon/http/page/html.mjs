// SPDX-License-Identifier: Apache-2.0
// Markup in which whatever is put in is text: html`<td>${name}</td>`.  Pure.

class Markup {
    constructor(text) {
        this.text = text;
    }

    toString() {
        return this.text;
    }
}

// Names, reasons and events are anybody's: no tags, and nothing that hides or turns what is read.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function escape(value) {
    return String(value)
        .replace(/[&<>"'`]/g, (one) => `&#${one.charCodeAt(0)};`)
        .replace(HIDDEN, '\ufffd');
}

function text(value) {
    if (value instanceof Markup)
        return value.text;
    if (Array.isArray(value))
        return value.map(text).join('');
    return value === null || value === undefined || value === false ? '' : escape(value);
}

// Values are escaped; markup is not, lists are one behind the other; null, undefined and false are nothing.
export function html(strings, ...values) {
    return new Markup(strings.reduce((all, one, i) => all + text(values[i - 1]) + one));
}
