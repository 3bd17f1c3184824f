package envtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Ribbon is the kind of convertible/ribbons.yaml in version v1, which is stored.
type Ribbon struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RibbonSpec `json:"spec,omitempty"`
}

type RibbonSpec struct {
	Millimeters int `json:"millimeters"`
}

// RibbonV1beta1 has centimeters.
type RibbonV1beta1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RibbonV1beta1Spec `json:"spec,omitempty"`
}

type RibbonV1beta1Spec struct {
	Centimeters int `json:"centimeters"`
}

type RibbonV1beta1List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RibbonV1beta1 `json:"items"`
}

func (*Ribbon) Hub() {}

func (r *RibbonV1beta1) ConvertTo(to conversion.Hub) error {
	hub := to.(*Ribbon)
	if r.Spec.Centimeters > 100_000 {
		return fmt.Errorf("%d cm are no ribbon", r.Spec.Centimeters)
	}
	hub.ObjectMeta, hub.Spec.Millimeters = r.ObjectMeta, r.Spec.Centimeters*10
	return nil
}

func (r *RibbonV1beta1) ConvertFrom(from conversion.Hub) error {
	hub := from.(*Ribbon)
	r.ObjectMeta, r.Spec.Centimeters = hub.ObjectMeta, hub.Spec.Millimeters/10
	return nil
}

func (r *Ribbon) DeepCopyObject() runtime.Object {
	copied := *r
	copied.ObjectMeta = *r.ObjectMeta.DeepCopy()
	return &copied
}

func (r *RibbonV1beta1) DeepCopyObject() runtime.Object {
	copied := *r
	copied.ObjectMeta = *r.ObjectMeta.DeepCopy()
	return &copied
}

func (l *RibbonV1beta1List) DeepCopyObject() runtime.Object {
	copied := &RibbonV1beta1List{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*RibbonV1beta1))
	}
	return copied
}

func ribbons(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	v1 := schema.GroupVersion{Group: "envtest.example.com", Version: "v1"}
	v1beta1 := schema.GroupVersion{Group: "envtest.example.com", Version: "v1beta1"}
	scheme.AddKnownTypeWithName(v1.WithKind("Ribbon"), &Ribbon{})
	scheme.AddKnownTypeWithName(v1beta1.WithKind("Ribbon"), &RibbonV1beta1{})
	scheme.AddKnownTypeWithName(v1beta1.WithKind("RibbonList"), &RibbonV1beta1List{})
	metav1.AddToGroupVersion(scheme, v1)
	metav1.AddToGroupVersion(scheme, v1beta1)
	return scheme
}

func TestVersionsAreConvertedByTheBuildersWebhook(t *testing.T) {
	scheme := ribbons(t)
	// envtest sets the conversion of every kind that the scheme can convert.
	own := &envtest.Environment{CRDDirectoryPaths: []string{"convertible"}, Scheme: scheme}
	config := started(t, own)
	options := own.WebhookInstallOptions
	ctx, cancel := context.WithCancel(t.Context())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	must(t, err)
	must(t, ctrl.NewWebhookManagedBy(manager, &Ribbon{}).Complete())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	eventually(t, "the webhook server has begun", func() error { return manager.GetWebhookServer().StartedChecker()(nil) })

	direct, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	old := &RibbonV1beta1{ObjectMeta: metav1.ObjectMeta{Name: "red", Namespace: "default"}, Spec: RibbonV1beta1Spec{Centimeters: 7}}
	must(t, direct.Create(t.Context(), old))
	key := client.ObjectKeyFromObject(old)
	stored := &Ribbon{}
	must(t, direct.Get(t.Context(), key, stored))
	if stored.Spec.Millimeters != 70 || stored.UID != old.UID {
		t.Errorf("it was stored as %+v", stored)
	}
	stored.Spec.Millimeters = 125
	must(t, direct.Update(t.Context(), stored))
	must(t, direct.Get(t.Context(), key, old))
	if old.Spec.Centimeters != 12 {
		t.Errorf("it is read as %+v", old)
	}
	// The manager's cache is of the version that is not stored: a list and a watch that convert.
	eventually(t, "the cache has the ribbon", func() error {
		cached := &RibbonV1beta1{}
		if err := manager.GetClient().Get(t.Context(), key, cached); err != nil || cached.Spec.Centimeters != 12 {
			return fmt.Errorf("cached %+v, %v", cached, err)
		}
		return nil
	})
	must(t, direct.Create(t.Context(), &Ribbon{ObjectMeta: metav1.ObjectMeta{Name: "blue", Namespace: "default"}, Spec: RibbonSpec{Millimeters: 30}}))
	eventually(t, "the watch has the other", func() error {
		cached := &RibbonV1beta1{}
		return manager.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "blue"}, cached)
	})
	list := &RibbonV1beta1List{}
	must(t, direct.List(t.Context(), list))
	if len(list.Items) != 2 || list.Items[0].Spec.Centimeters != 3 || list.Items[1].Spec.Centimeters != 12 {
		t.Errorf("the list is %+v", list.Items)
	}

	long := &RibbonV1beta1{ObjectMeta: metav1.ObjectMeta{Name: "long", Namespace: "default"}, Spec: RibbonV1beta1Spec{Centimeters: 1_000_000}}
	err = direct.Create(t.Context(), long)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "conversion webhook for envtest.example.com/v1beta1, Kind=Ribbon failed: ") ||
		!strings.Contains(err.Error(), "1000000 cm are no ribbon") {
		t.Errorf("want a failed conversion, got %v", err)
	}
	cancel()
	must(t, <-ended)
}
