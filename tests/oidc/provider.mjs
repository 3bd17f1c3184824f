// A real OpenID Connect provider on loopback, for tests: node provider.mjs MODULES CERTIFICATE KEY
//
// Prints one line of JSON with its issuer when it listens, and serves until it is killed. The client "robot" with the secret
// "secret" gets tokens for the audience "steersman" by the grant client_credentials; what they say of groups is below.

import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:https";
import { pathToFileURL } from "node:url";

const [modules, certificate, key] = process.argv.slice(2);
const entry = createRequire(`${modules}/`).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(entry));

const jwk = (type, options, parameters) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }),
  use: "sig",
  ...parameters,
});

const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) });
server.listen(0, "127.0.0.1", () => {
  const issuer = `https://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "robot",
      client_secret: "secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    }],
    jwks: {
      keys: [
        jwk("rsa", { modulusLength: 2048 }, { alg: "RS256", kid: "rsa" }),
        jwk("ec", { namedCurve: "P-256" }, { alg: "ES256", kid: "ec" }),
      ],
    },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => "urn:steersman",
        getResourceServerInfo: () => ({
          scope: "",
          audience: "steersman",
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: process.env.SIGNING_ALG ?? "RS256" } },
        }),
      },
    },
    extraTokenClaims: () => ({ groups: ["developers", "testers"], email: "robot@example.com" }),
  });
  server.on("request", provider.callback());
  console.log(JSON.stringify({ issuer }));
});
