// Package envtest is the suite of an operator as its authors write it, on the programs that KUBEBUILDER_ASSETS names: definitions
// are installed, users added, a manager runs a reconciler.
package envtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const patience = 60 * time.Second

var (
	environment *envtest.Environment
	config      *rest.Config
)

func TestMain(m *testing.M) {
	logf.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.UseDevMode(true)))
	if err := kites.Register(&Kite{}, &KiteList{}).AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	environment = &envtest.Environment{CRDDirectoryPaths: []string{"crds"}, ErrorIfCRDPathMissing: true}
	began := time.Now()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the environment does not start:", err)
		os.Exit(1)
	}
	fmt.Println("started with one definition in", time.Since(began))
	code := m.Run()
	began = time.Now()
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the environment does not stop:", err)
		code = 1
	}
	fmt.Println("stopped in", time.Since(began))
	os.Exit(code)
}

func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = ask(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, typed kubernetes.Interface) string {
	t.Helper()
	made, err := typed.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}, metav1.CreateOptions{})
	must(t, err)
	return made.Name
}

type reconciler struct{ client.Client }

// Reconcile gives every kite a ConfigMap and says so in its status.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	kite := &Kite{}
	if err := r.Get(ctx, request.NamespacedName, kite); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	line := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: kite.Name + "-line", Namespace: kite.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, line, func() error {
		line.Data = map[string]string{"length": fmt.Sprint(kite.Spec.Length)}
		return controllerutil.SetControllerReference(kite, line, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	kite.Status.Line = line.Name
	return ctrl.Result{}, r.Status().Update(ctx, kite)
}

func TestAManagerReconciles(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		LeaderElection:         true,
		LeaderElectionID:       "suite",
		// The lease is given back, so that nobody waits for it.
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	must(t, ctrl.NewControllerManagedBy(manager).For(&Kite{}).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient()}))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()

	direct, err := client.New(config, client.Options{})
	must(t, err)
	kite := &Kite{ObjectMeta: metav1.ObjectMeta{Name: "red", Namespace: "default"}}
	must(t, direct.Create(t.Context(), kite))
	if kite.Spec.Length != 10 {
		t.Errorf("the default is %d", kite.Spec.Length)
	}
	key := client.ObjectKeyFromObject(kite)
	eventually(t, "the status names the line", func() error {
		if err := direct.Get(t.Context(), key, kite); err != nil || kite.Status.Line != "red-line" {
			return fmt.Errorf("status %+v, %v", kite.Status, err)
		}
		return nil
	})
	line := &corev1.ConfigMap{}
	must(t, direct.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "red-line"}, line))
	if line.Data["length"] != "10" || !metav1.IsControlledBy(line, kite) {
		t.Errorf("the line is %+v", line)
	}
	// What somebody else takes away is made again.
	must(t, direct.Delete(t.Context(), line))
	eventually(t, "the line is there again", func() error {
		return direct.Get(t.Context(), client.ObjectKeyFromObject(line), line)
	})
	cancel()
	must(t, <-ended)
}

func TestAUserMayDoWhatARoleGrants(t *testing.T) {
	admin := kubernetes.NewForConfigOrDie(config)
	ns := namespace(t, admin)
	eve, err := environment.AddUser(envtest.User{Name: "eve", Groups: []string{"guests"}}, config)
	must(t, err)
	typed := kubernetes.NewForConfigOrDie(eve.Config())
	list := func() error {
		_, err := typed.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "eve" cannot list resource "pods"`) {
		t.Fatalf("want a refusal, got %v", err)
	}
	_, err = admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "guests"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "guests"}},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the group may list pods", list)
	review, err := typed.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	if user := review.Status.UserInfo; user.Username != "eve" || user.Groups[0] != "guests" {
		t.Errorf("the user is %+v", user)
	}
}

func TestKubectlWorksForAUser(t *testing.T) {
	root, err := environment.AddUser(envtest.User{Name: "root", Groups: []string{"system:masters"}}, config)
	must(t, err)
	kubectl, err := root.Kubectl()
	must(t, err)
	stdout, stderr, err := kubectl.Run("get", "namespace", "default", "-o", "name")
	must(t, err)
	said, err := io.ReadAll(stdout)
	must(t, err)
	complained, err := io.ReadAll(stderr)
	must(t, err)
	if string(said) != "namespace/default\n" {
		t.Errorf("kubectl says %q and %q", said, complained)
	}
}

func TestATokenOfAServiceAccountIsItsUser(t *testing.T) {
	admin := kubernetes.NewForConfigOrDie(config)
	ns := namespace(t, admin)
	_, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	token, err := admin.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "robot",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	robot := rest.AnonymousClientConfig(config)
	robot.BearerToken = token.Status.Token
	review, err := kubernetes.NewForConfigOrDie(robot).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	if want := "system:serviceaccount:" + ns + ":robot"; review.Status.UserInfo.Username != want {
		t.Errorf("the user is %q, want %q", review.Status.UserInfo.Username, want)
	}
}

type contentTypes struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]bool
}

func (c *contentTypes) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[response.Header.Get("Content-Type")] = true
	}
	return response, err
}

func TestBuiltInKindsComeInProtobuf(t *testing.T) {
	seen := &contentTypes{seen: map[string]bool{}}
	watched := rest.CopyConfig(config)
	watched.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	typed := kubernetes.NewForConfigOrDie(watched)
	_, err := typed.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	must(t, err)
	_, err = typed.CoreV1().Namespaces().Get(t.Context(), "none", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("want not found, got %v", err)
	}
	events, err := typed.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	if event := <-events.ResultChan(); event.Object.(*corev1.Namespace).Name == "" {
		t.Errorf("the first event is %+v", event)
	}
	events.Stop()
	want := map[string]bool{
		"application/vnd.kubernetes.protobuf":              true,
		"application/vnd.kubernetes.protobuf;stream=watch": true,
	}
	if fmt.Sprint(seen.seen) != fmt.Sprint(want) {
		t.Errorf("the answers came as %v", seen.seen)
	}
}

func TestTwentyEnvironmentsRunSideBySide(t *testing.T) {
	var all sync.WaitGroup
	failures := make(chan error, 20)
	for range cap(failures) {
		all.Go(func() {
			one := &envtest.Environment{}
			config, err := one.Start()
			if err != nil {
				failures <- fmt.Errorf("start: %w", err)
				return
			}
			spaces, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				failures <- fmt.Errorf("list: %w", err)
			} else if len(spaces.Items) != 4 {
				failures <- fmt.Errorf("%d namespaces", len(spaces.Items))
			}
			if err := one.Stop(); err != nil {
				failures <- fmt.Errorf("stop: %w", err)
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
}
