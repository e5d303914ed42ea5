{{/* The name of objects: outriderd, with the suffix -REVISION unless the revision is the default one. */}}
{{- define "outrider.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}
{{- define "outrider.suffix" -}}
{{ with include "outrider.revision" . }}{{ if ne . "default" }}-{{ . }}{{ end }}{{ end }}
{{- end }}
{{- define "outrider.name" -}}
outriderd{{ include "outrider.suffix" . }}
{{- end }}

{{/* The labels that select the control plane's pods. istio.io/rev is not among them, because it would request injection from other meshes. */}}
{{- define "outrider.selector" -}}
app: outriderd
outrider.dev/revision: {{ include "outrider.revision" . | quote }}
{{- end }}

{{/* The labels of each object. */}}
{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/name: outriderd
app.kubernetes.io/part-of: outrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* An image's reference. A name with a slash is a whole reference, as in injection. */}}
{{- define "outrider.image" -}}
{{- $p := .Values.pilot }}{{ $g := .Values.global }}
{{- if contains "/" $p.image }}{{ $p.image }}
{{- else }}{{ $p.hub | default $g.hub }}/{{ $p.image }}:{{ $p.tag | default $g.tag }}
{{- end }}
{{- end }}

{{/* Who signs the certificates: "external", the authority at global.caAddress; "secret", a key that the replicas share; "pod", a key of each replica. */}}
{{- define "outrider.signer" -}}
{{- if .Values.global.caAddress }}external{{ else if .Values.authority.secretName }}secret{{ else }}pod{{ end }}
{{- end }}

{{/* The value as auto, on or off, for the same reason as in outrider.ownLabels. */}}
{{- define "outrider.trustBundle" -}}
{{- $mode := .Values.authority.trustBundle }}
{{- if kindIs "bool" $mode }}{{ ternary "on" "off" $mode }}{{ else }}{{ $mode }}{{ end }}
{{- end }}

{{/* The custom kinds that are not read, such as "hosts httproutes". */}}
{{- define "outrider.skipped" -}}
{{- $f := .Values.features }}
{{- if not $f.gatewayRoutes }}httproutes {{ end }}
{{- if not $f.policies }}peerauthentications authorizationpolicies {{ end }}
{{- if not $f.hosts }}hosts {{ end }}
{{- if not $f.backendPolicies }}backendpolicies {{ end }}
{{- if not $f.otherMeshes }}ignored {{ end }}
{{- end }}

{{/* The value as auto, on or off, because YAML reads on and off without quotes as true and false. */}}
{{- define "outrider.ownLabels" -}}
{{- $own := .Values.sidecarInjectorWebhook.ownLabels }}
{{- if kindIs "bool" $own }}{{ ternary "on" "off" $own }}{{ else }}{{ $own }}{{ end }}
{{- end }}

{{/* Settings of access logs, tracing, request metrics and versions of TLS, unless none is set. */}}
{{- define "outrider.telemetry" -}}
{{- $mesh := pick .Values.meshConfig "accessLogFile" "accessLogFormat" "accessLogEncoding" "meshMTLS" "extensionProviders" "defaultProviders" }}
{{- with dig "tracing" dict (.Values.meshConfig.defaultConfig | default dict) }}{{ $mesh = set $mesh "tracing" . }}{{ end }}
{{- if include "outrider.metrics" . }}{{ $mesh = set $mesh "metrics" true }}{{ end }}
{{- with $mesh }}{{ toJson . }}{{ end }}
{{- end }}

{{/* Whether requests are counted. */}}
{{- define "outrider.metrics" -}}
{{- $t := .Values.telemetry }}
{{- if and $t.enabled $t.v2.enabled $t.v2.prometheus.enabled }}true{{ end }}
{{- end }}
