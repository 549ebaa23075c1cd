// SPDX-License-Identifier: Apache-2.0

/**
 * How to reach a server: the only module that reads the environment.
 *
 *     ZDNN_TLS_CA     file with the certificates that may sign the server's, PEM
 *     ZDNN_TLS_CERT   file with the client's certificate, PEM, for mutual TLS
 *     ZDNN_TLS_KEY    file with the key of ZDNN_TLS_CERT, PEM
 *     ZDNN_TOKEN      bearer token that the server asks for
 *     ZDNN_TRACE      trace that sessions join; `nnpa trace record` sets it
 *     ZDNN_TICKET     the trace's ticket where a proxy is in front of its server; set beside it
 *     ZDNN_PLAIN      1 or names of shortcuts, of which "stream" is this client's: leave them out
 *     ZDNN_WAIT       seconds for which a full server is waited for; without it, not at all
 *
 * Options win over the environment. TLS is for `host:port` targets; Unix sockets need none.
 */

import process from "node:process";

/** Credentials for a server; files are PEM. */
export interface Credentials {
  tlsCa?: string | undefined;
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
  token?: string | undefined;
}

/** A server's address, "host:port" or "unix:/path", and the credentials for it. */
export interface Endpoint extends Credentials {
  readonly target: string;
  readonly isLoopback: boolean;
}

/** Returns the trace that sessions join, "" for none. */
export function trace(environ = process.env): string {
  return environ.ZDNN_TRACE ?? "";
}

/** Returns the ticket of that trace, "" for none. */
export function traceTicket(environ = process.env): string {
  return trace(environ) ? (environ.ZDNN_TICKET ?? "") : "";
}

/** Returns how long to wait for a full server, milliseconds; throws TypeError for a wrong time. */
export function waitLimit(chosen: number | undefined, environ = process.env): number {
  const limit = chosen ?? Number(environ.ZDNN_WAIT ?? "0") * 1000;
  if (!(limit >= 0 && limit < Infinity)) {
    throw new TypeError(
      chosen === undefined
        ? `ZDNN_WAIT: ${environ.ZDNN_WAIT ?? ""}, expected seconds, 0 or more`
        : `wait: ${chosen}, expected milliseconds, 0 or more`,
    );
  }
  return limit;
}

/** Names that a client of any language has a shortcut of. */
const SHORTCUTS = ["stream", "plain-socket", "out-of-band-arrays", "content-cache", "shared-memory"];
/** Schemes of targets that gRPC resolves. Source: gRPC, naming.md. */
const SCHEMES = ["unix", "dns", "ipv4", "ipv6"];

/** Returns whether each list is a separate call; throws TypeError for an unknown shortcut. */
export function isPlain(chosen: boolean | undefined, environ = process.env): boolean {
  const names = (environ.ZDNN_PLAIN ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  const unknown = names.filter((name) => !["0", "1", ...SHORTCUTS].includes(name));
  if (unknown.length) {
    const expected = `1, or some of ${SHORTCUTS.join(", ")}`;
    throw new TypeError(`ZDNN_PLAIN: ${unknown.join(", ")}, expected ${expected}`);
  }
  return chosen ?? (names.includes("1") || names.includes("stream"));
}

/** Throws TypeError for a URL; the error shows the right form. */
function refuseUrl(target: string): void {
  const [, scheme, address = ""] = /^(\w*):\/\/(.*)$/.exec(target) ?? [];
  if (scheme !== undefined && !SCHEMES.includes(scheme)) {
    const advice = `give "${address.replace(/\/+$/, "")}", and tlsCa where the server has TLS`;
    throw new TypeError(`target: "${target}" is a URL, expected host:port; ${advice}`);
  }
}

/**
 * Returns the endpoint that target, options and environment describe.
 *
 * Throws TypeError for a target that is not an address, or for a certificate without its key.
 */
export function endpoint(target: string, options: Credentials, environ = process.env): Endpoint {
  refuseUrl(target);
  const path = target.startsWith("unix:");
  if (path ? target.length === "unix:".length : !/:\d+$/.test(target)) {
    throw new TypeError(`target: ${JSON.stringify(target)}, expected host:port or unix:/path`);
  }
  const token = options.token ?? environ.ZDNN_TOKEN ?? "";
  if (path) {
    return { target, token, isLoopback: true };
  }
  const file = (argument: string | undefined, name: string): string | undefined => {
    const chosen = argument ?? environ[name];
    return chosen === "" ? undefined : chosen;
  };
  const tlsCa = file(options.tlsCa, "ZDNN_TLS_CA");
  const tlsCert = file(options.tlsCert, "ZDNN_TLS_CERT");
  const tlsKey = file(options.tlsKey, "ZDNN_TLS_KEY");
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    const alone = tlsKey === undefined ? "tlsCert" : "tlsKey";
    throw new TypeError(`${alone}: given alone, tlsCert and tlsKey go together`);
  }
  if (tlsCert !== undefined && tlsCa === undefined) {
    throw new TypeError("tlsCa: not given, tlsCert needs it");
  }
  const host = target.slice(0, target.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  const isLoopback = host === "localhost" || host === "::1" || host.startsWith("127.");
  return { target, token, tlsCa, tlsCert, tlsKey, isLoopback };
}
