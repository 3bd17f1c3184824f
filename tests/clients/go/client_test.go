// Package client drives client-go against the server that KUBECONFIG names: typed over protobuf, dynamic, informers that
// stream their lists, leader election, apply, tokens.
package client

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

const patience = 60 * time.Second

// mediaTypes notes what the server answered with.
type mediaTypes struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]int
}

func (m *mediaTypes) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(request)
	if err == nil {
		m.mu.Lock()
		m.seen[response.Header.Get("Content-Type")]++
		m.mu.Unlock()
	}
	return response, err
}

func (m *mediaTypes) n(mediaType string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[mediaType]
}

type world struct {
	t         *testing.T
	ctx       context.Context
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	seen      *mediaTypes
}

// newWorld gives a test a client over protobuf and a namespace of its own.
func newWorld(t *testing.T) world {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	config.QPS, config.Burst = 1000, 1000
	seen := &mediaTypes{seen: map[string]int{}}
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	typed.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	client, err := kubernetes.NewForConfig(typed)
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "go-"},
	}, metav1.CreateOptions{})
	must(t, err)
	return world{t, ctx, config, client, namespace.Name, seen}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answered asks until there is an answer: a server that is killed takes the answers to its last requests with it, and
// client-go repeats only reads.
func answered(ask func() error) error {
	isUnanswered := func(err error) bool {
		return utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err) ||
			utilnet.IsHTTP2ConnectionLost(err)
	}
	return retry.OnError(retry.DefaultBackoff, isUnanswered, ask)
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "go"}}, Data: data}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:  "web",
				Image: "web:1",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")},
				}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			}},
		},
	}
}

func TestTypedClientsSpeakProtobuf(t *testing.T) {
	w := newWorld(t)
	pods := w.client.CoreV1().Pods(w.namespace)
	_, err := w.client.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	made, err := pods.Create(w.ctx, pod("web"), metav1.CreateOptions{})
	must(t, err)
	container := made.Spec.Containers[0]
	equal(t, container.Resources.Requests.Cpu().String(), "100m")
	equal(t, container.LivenessProbe.HTTPGet.Port.StrVal, "http")
	equal(t, container.ImagePullPolicy, corev1.PullIfNotPresent)
	equal(t, made.CreationTimestamp.IsZero(), false)

	list, err := pods.List(w.ctx, metav1.ListOptions{})
	must(t, err)
	equal(t, len(list.Items), 1)
	equal(t, list.Items[0].Spec, made.Spec)

	watcher, err := pods.Watch(w.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer watcher.Stop()
	must(t, pods.Delete(w.ctx, "web", metav1.DeleteOptions{}))
	event := <-watcher.ResultChan()
	for event.Type == watch.Modified {
		// It is said to be ending first.
		event = <-watcher.ResultChan()
	}
	equal(t, event.Type, watch.Deleted)
	equal(t, event.Object.(*corev1.Pod).UID, made.UID)

	_, err = pods.Get(w.ctx, "web", metav1.GetOptions{})
	equal(t, apierrors.IsNotFound(err), true)
	equal(t, w.seen.n(runtime.ContentTypeProtobuf) >= 4, true)
	equal(t, w.seen.n(runtime.ContentTypeProtobuf+";stream=watch"), 1)
	equal(t, w.seen.n(runtime.ContentTypeJSON), 0)
}

func TestConflictsAreRetried(t *testing.T) {
	w := newWorld(t)
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(w.ctx, configMap("count", map[string]string{}), metav1.CreateOptions{})
	must(t, err)
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			backoff := retry.DefaultBackoff
			backoff.Steps = 100
			err := retry.RetryOnConflict(backoff, func() error {
				current, err := maps.Get(w.ctx, "count", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if current.Data == nil {
					current.Data = map[string]string{}
				}
				current.Data[fmt.Sprint(writer)] = "here"
				_, err = maps.Update(w.ctx, current, metav1.UpdateOptions{})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	current, err := maps.Get(w.ctx, "count", metav1.GetOptions{})
	must(t, err)
	equal(t, len(current.Data), 8)
}

func TestListsComeInPages(t *testing.T) {
	w := newWorld(t)
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	for number := range 25 {
		_, err := maps.Create(w.ctx, configMap(fmt.Sprintf("m-%02d", number), nil), metav1.CreateOptions{})
		must(t, err)
	}
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = "test=go"
		return maps.List(w.ctx, options)
	}))
	pages.PageSize = 10
	var names []string
	must(t, pages.EachListItem(w.ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	}))
	equal(t, len(names), 25)
	equal(t, names[24], "m-24")
}

func TestInformersStreamTheirLists(t *testing.T) {
	w := newWorld(t)
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(w.ctx, configMap("before", nil), metav1.CreateOptions{})
	must(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace))
	informer := factory.Core().V1().ConfigMaps()
	told := make(chan string, 100)
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { told <- "add " + object.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, object any) { told <- "update " + object.(*corev1.ConfigMap).Data["n"] },
		DeleteFunc: func(object any) { told <- "delete " + object.(*corev1.ConfigMap).Name },
	})
	must(t, err)
	factory.Start(w.ctx.Done())
	equal(t, cache.WaitForCacheSync(w.ctx.Done(), informer.Informer().HasSynced), true)
	hear := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if strings.HasSuffix(got, "kube-root-ca.crt") {
				got = <-told
			}
			equal(t, got, want)
		case <-w.ctx.Done():
			t.Fatalf("%q was not told", want)
		}
	}
	hear("add before")
	_, err = maps.Update(w.ctx, configMap("before", map[string]string{"n": "2"}), metav1.UpdateOptions{})
	must(t, err)
	hear("update 2")
	must(t, maps.Delete(w.ctx, "before", metav1.DeleteOptions{}))
	hear("delete before")
	_, err = informer.Lister().ConfigMaps(w.namespace).Get("before")
	equal(t, apierrors.IsNotFound(err), true)
}

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

func TestDynamicClientsFindAndChangeWhatIsDefined(t *testing.T) {
	w := newWorld(t)
	client, err := dynamic.NewForConfig(w.config)
	must(t, err)
	group := w.namespace + ".example.com"
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "kites." + group},
		"spec": map[string]any{
			"group": group,
			"scope": "Namespaced",
			"names": map[string]any{"plural": "kites", "singular": "kite", "kind": "Kite"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec": map[string]any{"type": "object", "properties": map[string]any{
							"tails": map[string]any{"type": "integer", "default": int64(1)},
						}},
						"status": map[string]any{"type": "object", "properties": map[string]any{
							"up": map[string]any{"type": "boolean"},
						}},
					},
				}},
			}},
		},
	}}
	watcher, err := client.Resource(definitions).Watch(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=kites." + group})
	must(t, err)
	defer watcher.Stop()
	_, err = client.Resource(definitions).Create(w.ctx, definition, metav1.CreateOptions{})
	must(t, err)
	for event := range watcher.ResultChan() {
		if isTrue(event.Object.(*unstructured.Unstructured), "Established") {
			break
		}
	}

	found, err := discovery.NewDiscoveryClientForConfig(w.config)
	must(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: "Kite"})
	must(t, err)
	equal(t, mapping.Resource.Resource, "kites")

	kites := client.Resource(mapping.Resource).Namespace(w.namespace)
	kite := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Kite", "metadata": map[string]any{"name": "red"}, "spec": map[string]any{},
	}}
	made, err := kites.Create(w.ctx, kite, metav1.CreateOptions{})
	must(t, err)
	tails, _, _ := unstructured.NestedInt64(made.Object, "spec", "tails")
	equal(t, tails, int64(1))
	_, err = kites.Patch(w.ctx, "red", types.MergePatchType, []byte(`{"status":{"up":true}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	_, err = kites.Patch(w.ctx, "red", types.MergePatchType, []byte(`{"spec":{"tails":"many"}}`), metav1.PatchOptions{})
	equal(t, apierrors.IsInvalid(err), true)

	only, err := metadata.NewForConfig(w.config)
	must(t, err)
	list, err := only.Resource(mapping.Resource).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{})
	must(t, err)
	equal(t, len(list.Items), 1)
	equal(t, list.Items[0].UID, made.GetUID())
}

func isTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, each := range conditions {
		fields := each.(map[string]any)
		if fields["type"] == condition && fields["status"] == "True" {
			return true
		}
	}
	return false
}

func TestApplyTellsConflictsAndExtractsWhatIsOwned(t *testing.T) {
	w := newWorld(t)
	deployments := w.client.AppsV1().Deployments(w.namespace)
	web := func(replicas int32) *appsapply.DeploymentApplyConfiguration {
		labels := map[string]string{"app": "web"}
		return appsapply.Deployment("web", w.namespace).WithSpec(appsapply.DeploymentSpec().
			WithReplicas(replicas).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().
				WithContainers(coreapply.Container().WithName("web").WithImage("web:1")))))
	}
	made, err := deployments.Apply(w.ctx, web(2), metav1.ApplyOptions{FieldManager: "one"})
	must(t, err)
	equal(t, *made.Spec.Replicas, int32(2))
	equal(t, made.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	_, err = deployments.Apply(w.ctx, web(3), metav1.ApplyOptions{FieldManager: "two"})
	equal(t, apierrors.IsConflict(err), true)
	forced, err := deployments.Apply(w.ctx, web(3), metav1.ApplyOptions{FieldManager: "two", Force: true})
	must(t, err)
	owned, err := appsapply.ExtractDeployment(forced, "one")
	must(t, err)
	if owned.Spec.Replicas != nil {
		t.Fatal("the first still owns the replicas")
	}

	// The Deployment's own loop writes it too.
	must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := deployments.GetScale(w.ctx, "web", metav1.GetOptions{})
		must(t, err)
		scale.Spec.Replicas = 7
		_, err = deployments.UpdateScale(w.ctx, "web", scale, metav1.UpdateOptions{})
		return err
	}))
	read, err := deployments.Get(w.ctx, "web", metav1.GetOptions{})
	must(t, err)
	equal(t, *read.Spec.Replicas, int32(7))
}

func TestOneLeadsAndTheOtherTakesOver(t *testing.T) {
	w := newWorld(t)
	leads := make(chan string, 2)
	candidate := func(identity string) context.CancelFunc {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: w.namespace},
			Client:     w.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}
		ctx, cancel := context.WithCancel(w.ctx)
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- identity },
				OnStoppedLeading: func() {},
			},
		})
		return cancel
	}
	stop := candidate("first")
	equal(t, <-leads, "first")
	defer candidate("second")()
	stop()
	select {
	case who := <-leads:
		equal(t, who, "second")
	case <-w.ctx.Done():
		t.Fatal("nobody took over")
	}
}

func TestAnAccountMayWhatItsRoleSays(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
	}, metav1.CreateOptions{})
	must(t, err)
	seconds := int64(600)
	token, err := w.client.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.ctx, "robot", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	must(t, err)
	theirs := rest.AnonymousClientConfig(w.config)
	theirs.BearerToken = token.Status.Token
	robot, err := kubernetes.NewForConfig(theirs)
	must(t, err)
	_, err = robot.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{})
	equal(t, apierrors.IsForbidden(err), true)
	_, err = w.client.RbacV1().Roles(w.namespace).Create(w.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.client.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot", Namespace: w.namespace}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = robot.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{})
	must(t, err)
	review, err := robot.AuthorizationV1().SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.namespace, Verb: "delete", Resource: "configmaps",
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	equal(t, review.Status.Allowed, false)
	who, err := w.client.AuthenticationV1().TokenReviews().Create(w.ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
	}, metav1.CreateOptions{})
	must(t, err)
	equal(t, who.Status.User.Username, "system:serviceaccount:"+w.namespace+":robot")
}

func TestEvictionsRespectBudgets(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pods := w.client.CoreV1().Pods(w.namespace)
	ready := func(name string) {
		wanted := pod(name)
		wanted.Spec.SchedulerName = "nobody"
		made, err := pods.Create(w.ctx, wanted, metav1.CreateOptions{})
		must(t, err)
		made.Status.Phase = corev1.PodRunning
		made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err = pods.UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
		must(t, err)
	}
	ready("web")
	one := intstr.FromInt32(1)
	budgets := w.client.PolicyV1().PodDisruptionBudgets(w.namespace)
	watcher, err := budgets.Watch(w.ctx, metav1.ListOptions{})
	must(t, err)
	defer watcher.Stop()
	_, err = budgets.Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	healthy := func(count, allowed int32) {
		for event := range watcher.ResultChan() {
			status := event.Object.(*policyv1.PodDisruptionBudget).Status
			if status.CurrentHealthy == count && status.DisruptionsAllowed == allowed {
				return
			}
		}
		t.Fatalf("the budget never counted %d healthy pods, %d of them to spare", count, allowed)
	}
	healthy(1, 0)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: w.namespace}}
	err = answered(func() error { return pods.EvictV1(w.ctx, eviction) })
	if !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the eviction that the budget does not allow: %v", err)
	}
	ready("spare")
	healthy(2, 1)
	must(t, pods.EvictV1(w.ctx, eviction))
}

func TestEventsAreRecorded(t *testing.T) {
	w := newWorld(t)
	about, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, configMap("about", nil), metav1.CreateOptions{})
	must(t, err)
	watcher, err := w.client.EventsV1().Events(w.namespace).Watch(w.ctx, metav1.ListOptions{})
	must(t, err)
	defer watcher.Stop()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.client.EventsV1()})
	must(t, broadcaster.StartRecordingToSinkWithContext(w.ctx))
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "go-suite")
	recorder.Eventf(about, nil, corev1.EventTypeNormal, "Made", "Make", "made %s", about.Name)
	for event := range watcher.ResultChan() {
		if event.Type == watch.Added {
			return
		}
	}
	t.Fatal("no event came")
}
