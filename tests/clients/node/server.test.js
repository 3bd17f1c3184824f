import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const options = ['--in-memory', '--listen', '127.0.0.1:0', '--output', 'json', '--data-dir', mkdtempSync(`${tmpdir()}/steersman-`)];
const server = spawn('steersman', ['server', ...options], { stdio: ['ignore', 'pipe', 'inherit'] });
after(() => server.kill());
const ready = await createInterface({ input: server.stdout })[Symbol.asyncIterator]().next();
const config = new k8s.KubeConfig();
config.loadFromFile(JSON.parse(ready.value).kubeconfig);

test('the namespace default is there', async () => {
  const namespace = await config.makeApiClient(k8s.CoreV1Api).readNamespace({ name: 'default' });
  assert.equal(namespace.status.phase, 'Active');
});
