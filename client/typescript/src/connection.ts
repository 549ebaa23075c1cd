// SPDX-License-Identifier: Apache-2.0

/** Connections: to a shared server by its address, or to a private server. */

import { connect as connectTls } from "node:tls";

import { type Credentials, type Endpoint, endpoint } from "./config.js";
import { shownMachine } from "./display.js";
import { TransportError } from "./errors.js";
import { AcceleratorService, type Machine } from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { SessionOptions } from "./options.js";
import { PrivateServer } from "./private_server.js";
import { CONNECT_TIMEOUT, Session, type SessionListeners } from "./session.js";
import { type CallOptions, GrpcTransport } from "./transport.js";
import type { WaitOptions } from "./waiting.js";

/** Milliseconds for the look whether a server speaks TLS. */
const PROBE_TIMEOUT = 2000;
/** The page size of ListMachines. */
const PAGE_SIZE = 1000;

/** Credentials and timeouts of a connection. */
export interface ReachOptions extends Credentials {
  /** Milliseconds for each call of the session. Default: as long as it takes. */
  timeout?: number;
  /** Milliseconds for the calls that open and close a session. Default 10 000. */
  connectTimeout?: number;
  /** Sends each list as a call of its own, not over the session's stream. Default: ZDNN_PLAIN. */
  plain?: boolean;
  /** Cancels connecting. */
  signal?: AbortSignal;
}

/** All options of `connect`. */
export interface ConnectOptions
  extends ReachOptions, SessionOptions, SessionListeners, WaitOptions {}

/** Returns whether a TLS handshake succeeds at host:port, with any certificate. */
function speaksTls(target: string): Promise<boolean> {
  const colon = target.lastIndexOf(":");
  const host = target.slice(0, colon).replace(/^\[|\]$/g, "");
  const probe = { host, port: Number(target.slice(colon + 1)), ALPNProtocols: ["h2"] };
  return new Promise((resolve) => {
    const socket = connectTls({ ...probe, rejectUnauthorized: false, timeout: PROBE_TIMEOUT });
    const end = (speaks: boolean) => () => {
      socket.destroy();
      resolve(speaks);
    };
    socket.on("secureConnect", end(true)).on("error", end(false)).on("timeout", end(false));
  });
}

/** Returns an error that says that the server speaks TLS, if it does; else the same error. */
async function explainTls(error: unknown, { target, tlsCa }: Endpoint): Promise<unknown> {
  const isUnreached =
    error instanceof TransportError && error.code === "UNAVAILABLE" && !error.reason;
  if (!isUnreached || tlsCa !== undefined || target.startsWith("unix:")) {
    return error;
  }
  const advice =
    "Give tlsCa, or set ZDNN_TLS_CA: the file with the certificate that signs the server's.";
  return (await speaksTls(target))
    ? new TransportError("UNAVAILABLE", `${target} speaks TLS`, "", {}, { cause: error, advice })
    : error;
}

async function reach<T>(
  target: string | undefined,
  options: ReachOptions,
  use: (transport: GrpcTransport, calls: CallOptions, server?: PrivateServer) => Promise<T>,
): Promise<T> {
  const { timeout, connectTimeout = CONNECT_TIMEOUT, signal } = options;
  const server = target === undefined ? await PrivateServer.start() : undefined;
  try {
    const address = endpoint(server?.target ?? target ?? "", options);
    const transport = new GrpcTransport(address, timeout, options.plain);
    try {
      return await use(transport, { timeout: connectTimeout, signal }, server);
    } catch (error) {
      transport.close();
      throw await explainTls(error, address);
    }
  } catch (error) {
    await server?.stop();
    throw error;
  }
}

/**
 * Opens a session on an emulated machine.
 *
 *     await connect()                                             // a private server, ends with it
 *     await connect("localhost:50051", { machine: "telum1" })     // a shared server, TCP
 *     await connect("unix:/run/nnpa/nnpa.sock")                   // a shared server, Unix socket
 *     await connect("nnpa.example.org:443", { tlsCa: "ca.pem" })  // TLS; or ZDNN_TLS_CA and so on
 *     await connect(undefined, { machine: { maxDim1: 64 } })      // a custom machine
 *
 * Throws TransportError when the server cannot be reached, TypeError for options that contradict.
 */
export function connect(target?: string, options: ConnectOptions = {}): Promise<Session> {
  return reach(target, options, (transport, calls, server) =>
    Session.open(transport, options, calls, server),
  );
}

/** Lists the machines of a server, each with its answer to NNPA-QAF; options as in `connect`. */
export function listMachines(target?: string, options: ReachOptions = {}): Promise<Machine[]> {
  return reach(target, options, async (transport, calls, server) => {
    const machines: Machine[] = [];
    let pageToken = "";
    do {
      const request = { pageSize: PAGE_SIZE, pageToken };
      const { listMachines: method } = AcceleratorService.method;
      const page = await transport.unary(method, request, calls);
      machines.push(...page.machines.map(shownMachine));
      pageToken = page.nextPageToken;
    } while (pageToken);
    transport.close();
    await server?.stop();
    return machines;
  });
}
