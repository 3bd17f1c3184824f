import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.ServiceAccountBuilder;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.api.model.authentication.TokenRequestBuilder;
import io.fabric8.kubernetes.api.model.apiextensions.v1.CustomResourceDefinition;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** fabric8's client: typed, generic, apply, watches, informers, leader election, tokens. Says what holds, line by line. */
public final class Suite {
  private static final long PATIENCE_S = 60;

  private final KubernetesClient client;
  private final String namespace = "java-" + UUID.randomUUID().toString().substring(0, 8);
  private boolean hasFailed;

  private interface Fact {
    void check() throws Exception;
  }

  private Suite(KubernetesClient client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    // The client takes a key for RSA unless it is told: ours are on an elliptic curve.
    System.setProperty("kubernetes.certs.client.key.algo", "EC");
    Config config = Config.fromKubeconfig(Files.readString(Path.of(System.getenv("KUBECONFIG"))));
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      Suite suite = new Suite(client);
      suite.run();
      if (suite.hasFailed) {
        throw new AssertionError("some facts did not hold");
      }
    }
  }

  private void run() {
    client.namespaces().resource(new NamespaceBuilder().withNewMetadata().withName(namespace).endMetadata().build()).create();
    fact("an object is created, read, changed and deleted", this::life);
    fact("a watch tells every change in order", this::watched);
    fact("an informer holds what there is", this::informed);
    fact("custom objects follow their schema", this::custom);
    fact("an apply tells conflicts", this::applied);
    fact("one leads, and the other takes over", this::elected);
    fact("an account may what its role says", this::account);
    fact("a test starts a server of its own", OwnServer::check);
  }

  private void fact(String title, Fact fact) {
    try {
      fact.check();
      System.out.println("ok java: " + title);
    } catch (Exception | AssertionError error) {
      hasFailed = true;
      System.out.println("not ok java: " + title);
      System.out.println("#   " + String.valueOf(error).replace("\n", "\n#   "));
    }
  }

  private static void equal(Object got, Object want) {
    if (!want.equals(got)) {
      throw new AssertionError("got " + got + ", want " + want);
    }
  }

  /** The code with which the server refuses a call. */
  private static int refused(Fact call) throws Exception {
    try {
      call.check();
    } catch (KubernetesClientException error) {
      return error.getCode();
    }
    throw new AssertionError("it was not refused");
  }

  private ConfigMap map(String name, Map<String, String> data, String label) {
    return new ConfigMapBuilder()
        .withNewMetadata().withName(name).withNamespace(namespace).addToLabels("test", label).endMetadata()
        .withData(data)
        .build();
  }

  private void life() throws Exception {
    ConfigMap made = client.resource(map("life", Map.of("color", "red"), "life")).create();
    equal(made.getData(), Map.of("color", "red"));
    equal(refused(() -> client.resource(map("life", Map.of(), "life")).create()), 409);
    var life = client.configMaps().inNamespace(namespace).withName("life");
    life.edit(map -> new ConfigMapBuilder(map).addToData("size", "7").build());
    equal(life.get().getData(), Map.of("color", "red", "size", "7"));
    life.patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"color\":null}}");
    equal(life.get().getData(), Map.of("size", "7"));
    equal(refused(() -> client.resource(made).lockResourceVersion(made.getMetadata().getResourceVersion()).update()), 409);
    life.delete();
    life.waitUntilCondition(map -> map == null, PATIENCE_S, TimeUnit.SECONDS);
    equal(String.valueOf(life.get()), "null");
  }

  private void watched() throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    Watcher<ConfigMap> watcher = new Watcher<>() {
      @Override
      public void eventReceived(Action action, ConfigMap map) {
        told.add(action + " " + map.getData().get("n"));
      }

      @Override
      public void onClose(WatcherException cause) {}
    };
    try (var watch = client.configMaps().inNamespace(namespace).withLabel("test", "watched").watch(watcher)) {
      client.resource(map("watched", Map.of("n", "1"), "watched")).create();
      var map = client.configMaps().inNamespace(namespace).withName("watched");
      map.edit(old -> new ConfigMapBuilder(old).addToData("n", "2").build());
      map.delete();
      for (String want : List.of("ADDED 1", "MODIFIED 2", "DELETED 2")) {
        equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), want);
      }
    }
  }

  private void informed() throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    client.resource(map("before", Map.of(), "informed")).create();
    var handler = new ResourceEventHandler<ConfigMap>() {
      @Override
      public void onAdd(ConfigMap map) {
        told.add("add " + map.getMetadata().getName());
      }

      @Override
      public void onUpdate(ConfigMap old, ConfigMap map) {
        told.add("update " + map.getMetadata().getName());
      }

      @Override
      public void onDelete(ConfigMap map, boolean isUnknown) {
        told.add("delete " + map.getMetadata().getName());
      }
    };
    try (var informer = client.configMaps().inNamespace(namespace).withLabel("test", "informed").inform(handler)) {
      equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), "add before");
      client.resource(map("after", Map.of(), "informed")).create();
      equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), "add after");
      client.configMaps().inNamespace(namespace).withName("before").delete();
      equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), "delete before");
      equal(informer.getIndexer().list().stream().map(map -> map.getMetadata().getName()).toList(), List.of("after"));
    }
  }

  private void custom() throws Exception {
    String group = namespace + ".example.com";
    String definition = """
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {name: drums.GROUP}
        spec:
          group: GROUP
          names: {plural: drums, singular: drum, kind: Drum}
          scope: Namespaced
          versions:
          - name: v1
            served: true
            storage: true
            subresources: {status: {}}
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec: {type: object, properties: {heads: {type: integer, maximum: 2}}}
                  status: {type: object, properties: {tuned: {type: boolean}}}
        """.replace("GROUP", group);
    var made = client.resource(definition).create();
    client.resources(CustomResourceDefinition.class).withName(made.getMetadata().getName()).waitUntilCondition(
        crd -> crd != null && crd.getStatus() != null && crd.getStatus().getConditions().stream()
            .anyMatch(condition -> condition.getType().equals("Established") && condition.getStatus().equals("True")),
        PATIENCE_S, TimeUnit.SECONDS);
    var drums = client.genericKubernetesResources(group + "/v1", "Drum").inNamespace(namespace);
    GenericKubernetesResource drum = new GenericKubernetesResourceBuilder()
        .withApiVersion(group + "/v1").withKind("Drum")
        .withNewMetadata().withName("snare").endMetadata()
        .addToAdditionalProperties("spec", Map.of("heads", 2))
        .build();
    drums.resource(drum).create();
    drums.withName("snare").editStatus(old -> {
      old.setAdditionalProperty("status", Map.of("tuned", true));
      return old;
    });
    equal(drums.withName("snare").get().<Map<String, Object>>get("status"), Map.of("tuned", true));
    drum.getMetadata().setName("odd");
    drum.setAdditionalProperty("spec", Map.of("heads", 3));
    equal(refused(() -> drums.resource(drum).create()), 422);
  }

  private Deployment web(int replicas) {
    return new DeploymentBuilder()
        .withNewMetadata().withName("web").withNamespace(namespace).endMetadata()
        .withNewSpec()
        .withReplicas(replicas)
        .withNewSelector().addToMatchLabels("app", "web").endSelector()
        .withNewTemplate()
        .withNewMetadata().addToLabels("app", "web").endMetadata()
        .withNewSpec().addNewContainer().withName("web").withImage("web:1").endContainer().endSpec()
        .endTemplate()
        .endSpec()
        .build();
  }

  private void applied() throws Exception {
    equal(client.resource(web(2)).fieldManager("one").serverSideApply().getSpec().getReplicas(), 2);
    equal(refused(() -> client.resource(web(3)).fieldManager("two").serverSideApply()), 409);
    Deployment forced = client.resource(web(3)).fieldManager("two").forceConflicts().serverSideApply();
    equal(forced.getSpec().getReplicas(), 3);
    equal(client.apps().deployments().inNamespace(namespace).withName("web").scale(5).getSpec().getReplicas(), 5);
  }

  private CompletableFuture<?> candidate(String identity, BlockingQueue<String> leads) {
    var callbacks = new LeaderCallbacks(() -> leads.add(identity), () -> {}, leader -> {});
    var config = new LeaderElectionConfigBuilder()
        .withName("suite").withLock(new LeaseLock(namespace, "leader", identity)).withReleaseOnCancel(true)
        .withLeaseDuration(Duration.ofSeconds(15)).withRenewDeadline(Duration.ofSeconds(10))
        .withRetryPeriod(Duration.ofMillis(200)).withLeaderCallbacks(callbacks)
        .build();
    return client.leaderElector().withConfig(config).build().start();
  }

  private void elected() throws Exception {
    BlockingQueue<String> leads = new LinkedBlockingQueue<>();
    CompletableFuture<?> first = candidate("first", leads);
    equal(leads.poll(PATIENCE_S, TimeUnit.SECONDS), "first");
    CompletableFuture<?> second = candidate("second", leads);
    first.cancel(true);
    equal(leads.poll(PATIENCE_S, TimeUnit.SECONDS), "second");
    second.cancel(true);
  }

  private void account() throws Exception {
    client.resource(new ServiceAccountBuilder().withNewMetadata().withName("robot").withNamespace(namespace).endMetadata().build()).create();
    var request = new TokenRequestBuilder().withNewSpec().withExpirationSeconds(600L).endSpec().build();
    String token = client.serviceAccounts().inNamespace(namespace).withName("robot").tokenRequest(request).getStatus().getToken();
    Config theirs = new ConfigBuilder(Config.empty())
        .withMasterUrl(client.getConfiguration().getMasterUrl())
        .withCaCertData(client.getConfiguration().getCaCertData())
        .withOauthToken(token)
        .build();
    try (KubernetesClient robot = new KubernetesClientBuilder().withConfig(theirs).build()) {
      equal(refused(() -> robot.configMaps().inNamespace(namespace).list()), 403);
      client.resource("""
          apiVersion: rbac.authorization.k8s.io/v1
          kind: Role
          metadata: {name: reader, namespace: NS}
          rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
          """.replace("NS", namespace)).create();
      client.resource("""
          apiVersion: rbac.authorization.k8s.io/v1
          kind: RoleBinding
          metadata: {name: reader, namespace: NS}
          roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
          subjects: [{kind: ServiceAccount, name: robot, namespace: NS}]
          """.replace("NS", namespace)).create();
      robot.configMaps().inNamespace(namespace).list();
      equal(refused(() -> robot.secrets().inNamespace(namespace).list()), 403);
    }
  }
}
