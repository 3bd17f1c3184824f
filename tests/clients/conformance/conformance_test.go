// Package conformance is the end-to-end suite of Kubernetes, of which it runs the specs that specs.txt names.
package conformance

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	conformancetestdata "k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	"k8s.io/kubernetes/test/e2e/invariants/logcheck"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	testfixtures "k8s.io/kubernetes/test/fixtures"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/architecture"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/dra"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
	_ "k8s.io/kubernetes/test/e2e/storage"
	_ "k8s.io/kubernetes/test/utils/format"
)

//go:embed specs.txt
var specs string

var (
	lane     = flag.String("lane", "1/1", "I/N: the I-th of N parts of the specs that may run beside others; serial: those that may not")
	list     = flag.String("list", "", "a file with the names of specs to run instead")
	verdicts = flag.String("verdicts", "", "the file that the outcome of each spec is appended to")
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	logcheck.RegisterFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		fail("unknown arguments: %s", flag.Args())
	}
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(testfixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformancetestdata.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	names := chosen()
	if len(names) == 0 {
		// Without a focus, all specs would run.
		if *verdicts != "" {
			if err := os.WriteFile(*verdicts, nil, 0o644); err != nil {
				fail("%v", err)
			}
		}
		os.Exit(0)
	}
	for _, name := range names {
		if err := flag.Set("ginkgo.focus", regexp.QuoteMeta(name)); err != nil {
			fail("%v", err)
		}
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	e2e.RunE2ETests(t)
}

// The outcomes are facts in the form that the harness of the suites counts. A spec that was not run did not hold.
var _ = ginkgo.ReportAfterSuite("verdicts", func(report ginkgo.Report) {
	// The suite previews its specs in a dry run first.
	if *verdicts == "" || report.SuiteConfig.DryRun {
		return
	}
	open := map[string]bool{}
	for _, name := range chosen() {
		open[name] = true
	}
	file, err := os.OpenFile(*verdicts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fail("%v", err)
	}
	defer file.Close()
	for _, spec := range report.SpecReports {
		name := spec.FullText()
		if spec.LeafNodeType != types.NodeTypeIt || !open[name] {
			continue
		}
		delete(open, name)
		if spec.State == types.SpecStatePassed {
			fmt.Fprintf(file, "ok conformance/%s\n", name)
			continue
		}
		fmt.Fprintf(file, "not ok conformance/%s\n", name)
		reason := spec.State.String() + " " + spec.FailureMessage() + " " + spec.FailureLocation().String()
		for line := range strings.Lines(reason) {
			fmt.Fprintf(file, "# %s\n", strings.TrimRight(line, "\n"))
		}
	}
	for name := range open {
		fmt.Fprintf(file, "not ok conformance/%s\n# there is no such spec\n", name)
	}
})

// The names of the specs of this lane.
func chosen() []string {
	names := specs
	if *list != "" {
		given, err := os.ReadFile(*list)
		if err != nil {
			fail("%v", err)
		}
		names = string(given)
	}
	var part, parts int
	if *lane != "serial" {
		if _, err := fmt.Sscanf(*lane, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
			fail("-lane %s: want I/N or serial", *lane)
		}
	}
	var found []string
	beside := 0
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if strings.Contains(name, "[Serial]") {
			if *lane == "serial" {
				found = append(found, name)
			}
			continue
		}
		if *lane != "serial" && beside%parts == part-1 {
			found = append(found, name)
		}
		beside++
	}
	return found
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
