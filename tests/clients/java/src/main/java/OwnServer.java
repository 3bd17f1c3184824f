import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** A server that a test starts for itself, as the documentation shows it. */
final class OwnServer {
  private OwnServer() {}

  static void check() throws Exception {
    // The client takes keys for RSA unless it is told; Steersman's are on an elliptic curve. Or: java -Dkubernetes.certs.client.key.algo=EC
    System.setProperty("kubernetes.certs.client.key.algo", "EC");
    String data = Files.createTempDirectory("steersman").toString();
    Process server = new ProcessBuilder(
        "steersman", "server", "--in-memory", "--listen", "127.0.0.1:0", "--output", "json", "--data-dir", data)
        .redirectError(ProcessBuilder.Redirect.INHERIT).start();
    Runtime.getRuntime().addShutdownHook(new Thread(server::destroy));
    Map<?, ?> ready = new KubernetesSerialization().unmarshal(server.inputReader().readLine(), Map.class);
    Config config = Config.fromKubeconfig(Files.readString(Path.of((String) ready.get("kubeconfig"))));
    KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build();
    String phase = client.namespaces().withName("default").get().getStatus().getPhase();
    if (!phase.equals("Active")) {
      throw new AssertionError("the namespace default is " + phase);
    }
    client.close();
    server.destroy();
    if (server.waitFor() != 0) {
      throw new AssertionError("the server ended with " + server.exitValue());
    }
  }
}
