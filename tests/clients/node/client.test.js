// The official JavaScript client: typed, custom objects, apply, watches, informers, tokens.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, test } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const PATIENCE_MS = 60_000;
const config = new k8s.KubeConfig();
config.loadFromFile(process.env.KUBECONFIG);
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const namespace = `node-${randomUUID().slice(0, 8)}`;

const boat = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'boats.sea.example.com' },
  spec: {
    group: 'sea.example.com',
    names: { plural: 'boats', singular: 'boat', kind: 'Boat' },
    scope: 'Namespaced',
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              spec: { type: 'object', properties: { sails: { type: 'integer', minimum: 1 } } },
              status: { type: 'object', properties: { afloat: { type: 'boolean' } } },
            },
          },
        },
      },
    ],
  },
};

/** The code and reason with which the server refuses a call. */
async function refused(call) {
  try {
    await call();
  } catch (error) {
    const body = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    return [error.code, body.reason];
  }
  assert.fail('it was not refused');
}

/** A promise that others keep, or that fails when the time is over. */
function expectation(what) {
  let met;
  const promise = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what} did not come to pass`)), PATIENCE_MS);
    met = (value) => {
      clearTimeout(timer);
      resolve(value);
    };
  });
  return { promise, met };
}

const map = (name, data, labels) => ({ namespace, body: { metadata: { name, labels }, data } });

before(async () => {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
  await definitions.createCustomResourceDefinition({ body: boat });
  const established = expectation('Established');
  const request = await new k8s.Watch(config).watch(
    '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
    { fieldSelector: `metadata.name=${boat.metadata.name}` },
    (_, definition) => {
      const conditions = definition.status?.conditions ?? [];
      if (conditions.some(({ type, status }) => type === 'Established' && status === 'True')) established.met();
    },
    () => {},
  );
  await established.promise;
  request.abort();
});

test('an object is created, read, changed and deleted', async () => {
  const made = await core.createNamespacedConfigMap(map('life', { color: 'red' }));
  assert.deepEqual(made.data, { color: 'red' });
  const patched = await core.patchNamespacedConfigMap(
    { name: 'life', namespace, body: { data: { size: '7' } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
  );
  assert.deepEqual(patched.data, { color: 'red', size: '7' });
  const stale = () => core.replaceNamespacedConfigMap({ name: 'life', namespace, body: made });
  assert.deepEqual(await refused(stale), [409, 'Conflict']);
  patched.data = { color: 'blue' };
  const replaced = await core.replaceNamespacedConfigMap({ name: 'life', namespace, body: patched });
  assert.deepEqual(replaced.data, { color: 'blue' });
  await core.deleteNamespacedConfigMap({ name: 'life', namespace });
  assert.deepEqual(await refused(() => core.readNamespacedConfigMap({ name: 'life', namespace })), [404, 'NotFound']);
});

test('lists are selected and come in pages', async () => {
  for (let number = 0; number < 7; number++) {
    await core.createNamespacedConfigMap(map(`page-${number}`, {}, { book: 'one' }));
  }
  const names = [];
  let _continue;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'book=one', limit: 3, _continue });
    assert.ok(page.items.length <= 3);
    names.push(...page.items.map((item) => item.metadata.name));
    _continue = page.metadata._continue;
  } while (_continue);
  assert.deepEqual(names, [0, 1, 2, 3, 4, 5, 6].map((number) => `page-${number}`));
});

test('a watch tells every change in order', async () => {
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  await core.createNamespacedConfigMap(map('watched', { n: '1' }, { app: 'watched' }));
  await core.patchNamespacedConfigMap(
    { name: 'watched', namespace, body: [{ op: 'replace', path: '/data/n', value: '2' }] },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch),
  );
  await core.deleteNamespacedConfigMap({ name: 'watched', namespace });
  const seen = [];
  const gone = expectation('DELETED');
  const request = await new k8s.Watch(config).watch(
    `/api/v1/namespaces/${namespace}/configmaps`,
    { labelSelector: 'app=watched', resourceVersion: metadata.resourceVersion },
    (type, object) => {
      seen.push([type, object.data.n]);
      if (type === 'DELETED') gone.met();
    },
    () => {},
  );
  await gone.promise;
  request.abort();
  assert.deepEqual(seen, [['ADDED', '1'], ['MODIFIED', '2'], ['DELETED', '2']]);
});

test('an informer holds what there is', async () => {
  await core.createNamespacedConfigMap(map('before', {}, { informer: 'yes' }));
  const labelSelector = 'informer=yes';
  const informer = k8s.makeInformer(
    config,
    `/api/v1/namespaces/${namespace}/configmaps`,
    () => core.listNamespacedConfigMap({ namespace, labelSelector }),
    labelSelector,
  );
  const seen = [];
  const gone = expectation('delete');
  for (const verb of ['add', 'update', 'delete']) {
    informer.on(verb, (object) => {
      seen.push(`${verb} ${object.metadata.name}`);
      if (verb === 'delete') gone.met();
    });
  }
  await informer.start();
  assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name), ['before']);
  await core.createNamespacedConfigMap(map('after', {}, { informer: 'yes' }));
  await core.deleteNamespacedConfigMap({ name: 'before', namespace });
  await gone.promise;
  await informer.stop();
  assert.deepEqual(seen, ['add before', 'add after', 'delete before']);
  assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name), ['after']);
});

test('custom objects follow their schema', async () => {
  const place = { group: 'sea.example.com', version: 'v1', namespace, plural: 'boats' };
  const body = { apiVersion: 'sea.example.com/v1', kind: 'Boat', metadata: { name: 'dory' }, spec: { sails: 1 } };
  await custom.createNamespacedCustomObject({ ...place, body });
  await custom.patchNamespacedCustomObjectStatus(
    { ...place, name: 'dory', body: { status: { afloat: true } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
  );
  const read = await custom.getNamespacedCustomObject({ ...place, name: 'dory' });
  assert.deepEqual([read.spec, read.status], [{ sails: 1 }, { afloat: true }]);
  const bad = { ...body, metadata: { name: 'raft' }, spec: { sails: 0 } };
  assert.deepEqual(await refused(() => custom.createNamespacedCustomObject({ ...place, body: bad })), [422, 'Invalid']);
});

test('any object is applied, and conflicts are told', async () => {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const deployment = (replicas) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace },
    spec: {
      replicas,
      selector: { matchLabels: { app: 'web' } },
      template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'web', image: 'web:1' }] } },
    },
  });
  const apply = (object, manager, force) =>
    objects.patch(object, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
  const made = await apply(deployment(2), 'one');
  assert.equal(made.spec.replicas, 2);
  assert.equal(made.spec.template.spec.containers[0].imagePullPolicy, 'IfNotPresent');
  assert.deepEqual(await refused(() => apply(deployment(3), 'two')), [409, 'Conflict']);
  assert.equal((await apply(deployment(3), 'two', true)).spec.replicas, 3);
});

test('an account may what its role says', async () => {
  const access = config.makeApiClient(k8s.RbacAuthorizationV1Api);
  const name = 'reader';
  await core.createNamespacedServiceAccount({ namespace, body: { metadata: { name } } });
  const { status } = await core.createNamespacedServiceAccountToken({
    name,
    namespace,
    body: { spec: { audiences: [], expirationSeconds: 600 } },
  });
  const theirs = new k8s.KubeConfig();
  const { server, caData } = config.getCurrentCluster();
  theirs.loadFromClusterAndUser({ name: 'c', server, caData }, { name: 'u', token: status.token });
  const reader = theirs.makeApiClient(k8s.CoreV1Api);
  assert.deepEqual(await refused(() => reader.listNamespacedConfigMap({ namespace })), [403, 'Forbidden']);
  await access.createNamespacedRole({
    namespace,
    body: { metadata: { name }, rules: [{ apiGroups: [''], resources: ['configmaps'], verbs: ['list'] }] },
  });
  await access.createNamespacedRoleBinding({
    namespace,
    body: {
      metadata: { name },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace }],
    },
  });
  await reader.listNamespacedConfigMap({ namespace });
  assert.deepEqual(await refused(() => reader.listNamespacedSecret({ namespace })), [403, 'Forbidden']);
});
