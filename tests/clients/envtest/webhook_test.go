package envtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// kiteWebhook is what the builder makes webhooks of.
type kiteWebhook struct{}

func (kiteWebhook) Default(ctx context.Context, kite *Kite) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if kite.Annotations == nil {
		kite.Annotations = map[string]string{}
	}
	kite.Annotations["flown-by"] = request.UserInfo.Username
	return nil
}

func (kiteWebhook) ValidateCreate(_ context.Context, kite *Kite) (admission.Warnings, error) {
	if kite.Spec.Length > 1000 {
		path := field.NewPath("spec", "length")
		invalid := field.ErrorList{field.Invalid(path, kite.Spec.Length, "nobody can hold it")}
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "envtest.example.com", Kind: "Kite"}, kite.Name, invalid)
	}
	if kite.Spec.Length > 100 {
		return admission.Warnings{"a long line is heavy"}, nil
	}
	return nil, nil
}

func (w kiteWebhook) ValidateUpdate(ctx context.Context, old, kite *Kite) (admission.Warnings, error) {
	if kite.Spec.Length < old.Spec.Length {
		return nil, fmt.Errorf("a line of %d is not cut to %d", old.Spec.Length, kite.Spec.Length)
	}
	return w.ValidateCreate(ctx, kite)
}

func (kiteWebhook) ValidateDelete(_ context.Context, kite *Kite) (admission.Warnings, error) {
	if kite.Labels["flies"] == "true" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: "envtest.example.com", Resource: "kites"}, kite.Name,
			fmt.Errorf("it flies"))
	}
	return nil, nil
}

// serve runs a manager whose webhooks are on the host and port that envtest has chosen.
func serve(t *testing.T, config *rest.Config, options envtest.WebhookInstallOptions, more func(ctrl.Manager) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	must(t, err)
	must(t, ctrl.NewWebhookManagedBy(manager, &Kite{}).WithDefaulter(kiteWebhook{}).WithValidator(kiteWebhook{}).Complete())
	if more != nil {
		must(t, more(manager))
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the webhook server has begun", func() error { return manager.GetWebhookServer().StartedChecker()(nil) })
}

func started(t *testing.T, environment *envtest.Environment) *rest.Config {
	t.Helper()
	config, err := environment.Start()
	must(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return config
}

type warnings struct {
	mu   sync.Mutex
	seen []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func TestWebhooksOfTheBuilder(t *testing.T) {
	own := &envtest.Environment{
		CRDDirectoryPaths:     []string{"crds"},
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{"webhooks"}},
	}
	config := started(t, own)
	serve(t, config, own.WebhookInstallOptions, nil)
	heard := &warnings{}
	config.WarningHandlerWithContext = heard
	direct, err := client.New(config, client.Options{})
	must(t, err)

	kite := &Kite{ObjectMeta: metav1.ObjectMeta{Name: "red", Namespace: "default"}, Spec: KiteSpec{Length: 200}}
	must(t, direct.Create(t.Context(), kite))
	if user := kite.Annotations["flown-by"]; user != "admin" {
		t.Errorf("the annotation is %q", user)
	}
	if fmt.Sprint(heard.seen) != "[a long line is heavy]" {
		t.Errorf("the warnings are %q", heard.seen)
	}

	long := &Kite{ObjectMeta: metav1.ObjectMeta{Name: "long", Namespace: "default"}, Spec: KiteSpec{Length: 2000}}
	err = direct.Create(t.Context(), long)
	want := `admission webhook "vkite-v1.kb.io" denied the request: Kite.envtest.example.com "long" is invalid: ` +
		`spec.length: Invalid value: 2000: nobody can hold it`
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("want %q, got %q", want, err)
	}
	if causes := err.(apierrors.APIStatus).Status().Details.Causes; len(causes) != 1 || causes[0].Field != "spec.length" {
		t.Errorf("the causes are %+v", causes)
	}

	kite.Spec.Length = 100
	err = direct.Update(t.Context(), kite)
	want = `admission webhook "vkite-v1.kb.io" denied the request: a line of 200 is not cut to 100`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("want %q, got %q", want, err)
	}

	flies := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"flies":"true"}}}`))
	must(t, direct.Patch(t.Context(), kite, flies))
	if err = direct.Delete(t.Context(), kite); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it flies") {
		t.Errorf("want a refusal, got %v", err)
	}
	err = direct.DeleteAllOf(t.Context(), &Kite{}, client.InNamespace("default"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it flies") {
		t.Errorf("want a refusal, got %v", err)
	}
	lands := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
	must(t, direct.Patch(t.Context(), kite, lands))
	must(t, direct.Delete(t.Context(), kite))
}

const injectFrom = "cert-manager.io/inject-ca-from-secret"

// injector copies ca.crt of a Secret into the caBundle of configurations that name it, as cert-manager's cainjector does.
type injector struct{ client.Client }

func (i *injector) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := i.Get(ctx, request.NamespacedName, hook); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	namespace, name, named := strings.Cut(hook.Annotations[injectFrom], "/")
	if !named {
		return ctrl.Result{}, nil
	}
	secret := &corev1.Secret{}
	if err := i.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	for at := range hook.Webhooks {
		hook.Webhooks[at].ClientConfig.CABundle = secret.Data["ca.crt"]
	}
	return ctrl.Result{}, client.IgnoreNotFound(i.Update(ctx, hook))
}

// setUp watches the configurations, and the Secrets that they name.
func setUp(manager ctrl.Manager) error {
	named := func(ctx context.Context, secret client.Object) (requests []reconcile.Request) {
		hooks := &admissionregistrationv1.MutatingWebhookConfigurationList{}
		if err := manager.GetClient().List(ctx, hooks); err != nil {
			return nil
		}
		for _, hook := range hooks.Items {
			if hook.Annotations[injectFrom] == secret.GetNamespace()+"/"+secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: hook.Name}})
			}
		}
		return requests
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(named)).
		Complete(&injector{manager.GetClient()})
}

func TestAnInjectorOfCAsMakesWebhooksTrusted(t *testing.T) {
	own := &envtest.Environment{CRDDirectoryPaths: []string{"crds"}}
	config := started(t, own)
	// The certificate is envtest's, the configuration is not.
	options := own.WebhookInstallOptions
	serve(t, config, options, setUp)
	direct, err := client.New(config, client.Options{})
	must(t, err)

	url := fmt.Sprintf("https://%s/mutate-envtest-example-com-v1-kite",
		net.JoinHostPort(options.LocalServingHost, fmt.Sprint(options.LocalServingPort)))
	none := admissionregistrationv1.SideEffectClassNone
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "injected", Annotations: map[string]string{injectFrom: "default/authority"}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "mkite.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"envtest.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"kites"},
				},
			}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	must(t, direct.Create(t.Context(), hook))
	kite := func(name string) *Kite { return &Kite{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}} }
	err = direct.Create(t.Context(), kite("untrusted"))
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "mkite.example.com"`) {
		t.Fatalf("want a failed call, got %v", err)
	}

	injected := func(bundle []byte) {
		t.Helper()
		eventually(t, "the bundle is there", func() error {
			if err := direct.Get(t.Context(), client.ObjectKeyFromObject(hook), hook); err != nil {
				return err
			}
			if !bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, bundle) {
				return fmt.Errorf("the bundle is %q", hook.Webhooks[0].ClientConfig.CABundle)
			}
			return nil
		})
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "authority", Namespace: "default"},
		Data:       map[string][]byte{"ca.crt": options.LocalServingCAData},
	}
	must(t, direct.Create(t.Context(), secret))
	injected(options.LocalServingCAData)
	blue := kite("blue")
	must(t, direct.Create(t.Context(), blue))
	if blue.Annotations["flown-by"] == "" {
		t.Errorf("the annotations are %v", blue.Annotations)
	}

	// Another authority: connections that trusted the former are not used any more.
	other := &envtest.WebhookInstallOptions{}
	must(t, other.PrepWithoutInstalling())
	secret.Data["ca.crt"] = other.LocalServingCAData
	must(t, direct.Update(t.Context(), secret))
	injected(other.LocalServingCAData)
	if err = direct.Create(t.Context(), kite("late")); !apierrors.IsInternalError(err) {
		t.Errorf("want a failed call, got %v", err)
	}
	// Both, as while one is replaced by the other.
	secret.Data["ca.crt"] = append(append([]byte{}, other.LocalServingCAData...), options.LocalServingCAData...)
	must(t, direct.Update(t.Context(), secret))
	injected(secret.Data["ca.crt"])
	must(t, direct.Create(t.Context(), kite("green")))
}
