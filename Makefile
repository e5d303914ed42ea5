# Outrider's tasks. "make help" lists them.

GO      ?= go
CACHE   := .cache
ENVOY   ?= $(CACHE)/envoy/envoy
# What the commands and the demo call, and what the tests need besides, by the names of
# Debian's packages.
PACKAGES      := nftables iptables iproute2 util-linux procps
TEST_PACKAGES := busybox-static containerd containernetworking-plugins ipset runc \
	chromium fonts-dejavu-core
# KUBE=v1.36 is the other version of the test cluster, RUNTIME=containerd-2 its other runtime.
KUBE     ?= v1.34
RUNTIME  ?= containerd

export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the tasks
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

.PHONY: deps test-deps
deps: $(ENVOY) ## install what the commands and the demo call: nftables, iptables, iproute2, Envoy
	@build/packages.sh $(PACKAGES)
	$(GO) mod download
	$(ENVOY) --version
test-deps: deps ## and what the tests need besides: containerd, runc, chromium
	@build/packages.sh $(TEST_PACKAGES)

# ENVOY=/some/envoy uses another binary, and nothing is fetched.
$(CACHE)/envoy/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(CACHE)/envoy

.PHONY: build
build: ## the commands, into bin/
	$(GO) run ./build/commands/cmd bin

.PHONY: images
images: build $(ENVOY) ## container images for this machine as OCI tarballs, into bin/images; no container engine
	$(GO) run ./build/images -envoy $(ENVOY)

# For both architectures, with Debian's C library and not this machine's:
#   make images-all OUT=registry://registry.example/outrider TAG=1.2.3
OUT ?= oci:bin/oci
TAG ?= dev
PROXY_PARTS := $(CACHE)/envoy-amd64/envoy $(CACHE)/envoy-arm64/envoy $(CACHE)/libc-amd64/version $(CACHE)/libc-arm64/version
.PHONY: images-all
images-all: $(PROXY_PARTS) ## images for amd64 and arm64 under one name: OUT=oci:FOLDER, registry://HOST/PATH or a folder for tarballs; TAG=1.2.3
	$(GO) run ./build/commands/cmd bin/linux_amd64 linux/amd64
	$(GO) run ./build/commands/cmd bin/linux_arm64 linux/arm64
	$(GO) run ./build/images -arch amd64,arm64 -bin bin/linux_{arch} -envoy $(CACHE)/envoy-{arch}/envoy -libc $(CACHE)/libc-{arch} -o $(OUT) -tag $(TAG)
$(CACHE)/envoy-amd64/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(@D) x86_64
$(CACHE)/envoy-arm64/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(@D) aarch64
$(CACHE)/libc-%/version: build/libc.txt
	build/libc.sh $(@D) $*

.PHONY: release reproducible
release: ## archives of the command outrider, with checksums.txt, into bin/release
	$(GO) run ./build/release
reproducible: ## images and archives of the commit twice, from two clones with empty caches; fails if a byte differs
	build/reproducible.sh $(abspath $(CACHE))
.PHONY: krew
krew: ## the manifest by which krew installs "kubectl outrider", of the archives in bin/release
	$(GO) run ./build/krew

# These wait most of their time: for the kernel, and for programs to start and to end.
WAITING := ./test/agent ./test/awesome ./test/mesh ./test/netns ./test/ready
# For applications: modules of their own, which need nothing of this one.
LIBRARIES := ready ready/grpcready resilience resilience/grpcresilience resilience/otelresilience \
	bootconfig bootconfig/consul bootconfig/koanf bootconfig/kubernetes bootconfig/nacos \
	examples/awesome-app/go

.PHONY: test
test: ## all tests; as root, or those in network namespaces are skipped
	$(GO) test -count=1 -timeout 30m $$($(GO) list ./... | grep -v '/test/')
	$(GO) test -count=1 -timeout 30m -p 3 $(WAITING)
	$(GO) test -count=1 -timeout 30m -p 1 $$($(GO) list ./test/... | grep -v $(WAITING:./%=-e '/%$$')) # one at a time: they fill the machine
	cd test/validation && $(GO) test -count=1 -timeout 30m ./...
	cd test/krew && $(GO) test -count=1 -timeout 30m ./...
	$(MAKE) libraries
.PHONY: libraries
libraries: ## the tests of the modules for applications alone: ready, resilience, bootconfig and their adapters; as root
	@for m in $(LIBRARIES); do (set -x; cd $$m && $(GO) test -count=1 -timeout 10m ./...) || exit 1; done

.PHONY: centres
centres: $(CACHE)/configcentres/consul $(CACHE)/configcentres/nacos/nacos.jar ## the suites of bootconfig's adapters on a real Consul and Nacos, which it builds first, 10 minutes (root, Java 17, Maven)
	@for m in consul nacos; do (set -x; cd bootconfig/$$m && $(GO) test -count=1 -timeout 10m -v -run TestA ./...) || exit 1; done
$(CACHE)/configcentres/consul: test/centres/consul/go.mod
	cd test/centres/consul && $(GO) build -ldflags='-s -w' -o $(abspath $@) github.com/hashicorp/consul
$(CACHE)/configcentres/nacos/nacos.jar: $(wildcard test/centres/nacos/*)
	mvn -q -B -f test/centres/nacos/pom.xml package

.PHONY: validation
PODS ?= 400
validation: ## does the API server's own code take every pod that is injected, and Kubernetes 1.29 to 1.36 the chart? prints counts; PODS=10000 random ones take 3 minutes
	cd test/validation && $(GO) test -count=1 -timeout 60m -v ./... -pods $(PODS)

.PHONY: corpus incidents
corpus: ## how many incidents of testdata/incidents are diagnosed right, as a confusion matrix for each split
	@$(GO) test -count=1 -v -run 'TestIncidents$$' ./internal/diagnose | grep -E '^ +corpus_test|^(ok|FAIL|---)'
RUN ?=
incidents: build $(ENVOY) ## record what is missing in testdata/incidents from real processes; RUN=java-.* records again (root)
	build/packages.sh ruby php-cli redis-tools nginx-light nodejs python3 perl curl default-jdk-headless
	$(GO) run ./test/incidents -envoy $(ENVOY) -run '$(RUN)'

.PHONY: house
house: ## measure what is to stay small: links, branches, copies, words, lines
	@$(GO) run ./build/house

# The packages whose own code shares memory between goroutines: only there can the race
# detector, which makes tests five times slower, find anything.
CONCURRENT = $$(git grep -lE '^\s*go [a-z(]|"sync"|"sync/atomic"|"net/http"|"google.golang.org/grpc"' -- 'internal/*.go' 'cmd/outrider-agent/*.go' 'cmd/outriderd/*.go' 'startup/*.go' | \
	grep -v _test.go | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: check
check: house ## format, vet, other systems, staticcheck, race detector, arrows, tidy modules
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }
	$(GO) vet ./...
	GOOS=windows $(GO) build -o /dev/null ./cmd/outrider # it has the least in common with Linux; "make release" builds all
	$(GO) tool -modfile=build/tools/go.mod staticcheck ./...
	$(GO) mod tidy -diff
	CGO_ENABLED=1 $(GO) test -race -timeout 30m -p 3 ./test/agent $(CONCURRENT) # the first takes longest, and builds the commands with the detector too
	@for m in $(LIBRARIES); do (set -x; cd $$m && $(GO) vet ./... && \
		$(GO) tool -modfile=$(CURDIR)/build/tools/go.mod staticcheck ./... && $(GO) mod tidy -diff) || exit 1; done
	@for m in ready resilience bootconfig; do (set -x; cd $$m && GOOS=windows $(GO) build ./... && \
		CGO_ENABLED=1 $(GO) test -race -timeout 10m ./...) || exit 1; done # what the adapters link takes minutes to build with the detector

.PHONY: istio-names
istio-names: ## does the table of Istio's settings have all that Istio publishes? test/istioapi/names_test.go says how to get the next
	cd test/istioapi && $(GO) test -count=1 ./...

.PHONY: fuzz
FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME (30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9]+' $$dir/*_test.go | sed 's/^func //'); do \
			echo "$$dir $$target" >&2; \
			if out=$$($(GO) -C $$dir test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x . 2>&1); then echo "$$out" | tail -n 1; continue; fi; \
			echo "$$out" | tail -n 30; \
			echo "$$out" | grep -q 'context deadline exceeded' && ! echo "$$out" | grep -q 'Failing input' || exit 1; \
			echo 'no failing input: the time ended while Go was at work (https://go.dev/issue/75804)'; done; done

.PHONY: explain
PAIRS ?= 2000
explain: ## random flags and connections: does the kernel do what "rules --explain" prints (root)
	OUTRIDER_PAIRS=$(PAIRS) $(GO) test ./test/netns -run 'TestExplain$$' -count=1 -v -timeout 30m

.PHONY: attack
attack: ## hostile callers against the real commands, within their memory limits; prints a table (root)
	$(GO) test -count=1 -timeout 60m -v ./test/attack -long

.PHONY: storm
storm: ## 5,000 simulated proxies connect again after each of three kills of outriderd; prints times and memory
	$(GO) test -count=1 -timeout 30m -v ./test/storm -proxies 5000 -kills 3

.PHONY: demo demo-parking
demo: build $(ENVOY) ## the race at a pod's start, and the ways out, with real parts; under a minute (root)
	@bin/outrider demo --envoy $(ENVOY) --report bin/demo.html
demo-parking: build ## parking alone, seen on this machine; five seconds (root)
	OUTRIDER_AGENT=$(CURDIR)/bin/outrider-agent examples/parking/run.sh

.PHONY: bench
bench: ## measure; prints tables, asserts nothing (root)
	$(GO) run ./bench/capture
	$(GO) run ./bench/agent
	$(GO) run ./bench/wait
	$(GO) run ./bench/xds
	$(GO) run ./bench/evidence
	$(GO) run ./bench/diagnose
	$(GO) run ./bench/awesome
	$(GO) test -run '^$$' -bench Telemetry -benchtime 1x ./test/mesh
	$(GO) test -run '^$$' -bench 'Explore|Run|Pod|Review' -benchmem -cpu 1 ./internal/model/verify ./internal/model/simulate ./internal/pod/inject ./internal/controlplane/webhook
	cd resilience && $(GO) test -run '^$$' -bench . -cpu 1 .
	$(GO) -C bootconfig test -run '^$$' -bench . -benchmem

.PHONY: campaign
campaign: ## kill 200 captures, start 20 at once 100 times, on each backend; 30 minutes (root)
	OUTRIDER_KILLS=200 OUTRIDER_ROUNDS=100 $(GO) test -count=1 -timeout 90m -v -run 'TestKilledCaptures|TestCapturesAtOnce' ./test/netns

# One at a time: each brings up a cluster of its own. A cold start builds it first.
E2E := OUTRIDER_E2E=1 $(GO) test -count=1 -timeout 60m -p 1 -parallel 4
.PHONY: e2e e2e-api e2e-by-node e2e-all e2e-node load load-node bench-cluster
e2e: ## the promise on a real kubelet, case by case; 30 minutes, the first time 45 (root)
	$(E2E) ./test/cluster # which looks for what a cluster has left on the machine
	$(MAKE) -j2 --output-sync=target e2e-api e2e-by-node # these wait most of their time
	$(E2E) -v ./test/e2e
e2e-api:
	$(E2E) ./test/kube
e2e-by-node:
	RUNTIME=containerd-2 $(E2E) -v -run '$(BY_NODE)' ./test/e2e
# What the plugins of the node are for: killed, restarted, rebooted under pods that need them.
BY_NODE := TestOrder$$|TestNode|TestRuntimeRestarts
e2e-all: ## the order of pods on both versions of Kubernetes (root)
	for v in v1.34 v1.36; do KUBE=$$v $(E2E) -v -run 'TestOrder|TestGraph|TestEnds|TestTheProxyIsLate|TestFaults' ./test/e2e || exit 1; done
e2e-node: ## every case with the plugins of the node, on containerd 2; 20 minutes (root); KUBE=v1.36 is the other version
	RUNTIME=containerd-2 $(E2E) -v ./test/e2e
load-node: ## the node's plugins at size: 200 pods under 50 kills, 20 reboots, 150 pods in three waves; 40 minutes (root); KUBE=v1.36 is the other version
	RUNTIME=containerd-2 OUTRIDER_CALLS=$(CALLS) $(subst 60m,90m,$(E2E)) -v -run 'TestNode|TestRuntimeRestarts|TestFiftyAtOnce/gate' ./test/e2e
CALLS ?= 50000
load: ## roll-outs (CALLS for each way to order), kills and restarts on a real kubelet; 55 minutes (root)
	OUTRIDER_CALLS=$(CALLS) $(subst 60m,90m,$(E2E)) -v -run 'TestRollouts|UnderLoad' ./test/e2e
bench-cluster: ## what each way to start a pod costs on a real kubelet; 15 minutes (root)
	$(GO) run ./bench/cluster -kube $(KUBE) -runtime $(RUNTIME)

.PHONY: conformance
conformance: ## the Gateway API's own suite for meshes, on a real kubelet; its report: docs/conformance (root); RUN=MeshPorts runs one test
	$(GO) run ./test/e2e/conformance -kube $(KUBE) -runtime $(RUNTIME) -run '$(RUN)'

.PHONY: cluster cluster-down
cluster: ## a real one-node Kubernetes, left up; builds it first, 15 minutes (root)
	$(GO) build -o bin/cluster ./test/cluster/cmd
	@bin/cluster up --kube $(KUBE) --runtime $(RUNTIME)
cluster-down: ## end it; nothing is left but its logs
	$(GO) build -o bin/cluster ./test/cluster/cmd
	@bin/cluster down --kube $(KUBE) --runtime $(RUNTIME)

.PHONY: traces costs
traces: ## record what real kubelets do, for the tests of the model; 20 minutes (root)
	$(GO) run ./test/traces/cmd record --kube v1.34
	$(GO) run ./test/traces/cmd record --kube v1.36
costs: ## measure what each way of ordering costs on real kubelets; 8 minutes (root)
	$(GO) run ./test/traces/cmd costs --kube v1.34
	$(GO) run ./test/traces/cmd costs --kube v1.36

.PHONY: clean
clean: ## remove what was built; .cache stays
	rm -rf bin
