{{/* Base of all names: the release. Short enough for the longest suffix and the labels that controllers derive. */}}
{{- define "waybill.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which selectors find pods. Parameters: root, component, name (of what is not a part of the service). */}}
{{- define "waybill.selector" -}}
app.kubernetes.io/name: {{ .name | default "waybill" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "waybill.labels" -}}
{{ include "waybill.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Pods that use the stores, for network policies. */}}
{{- define "waybill.allPods" -}}
matchLabels:
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [api, relay, mx, mta, worker, migrate]}
{{- end -}}

{{- define "waybill.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{/* What the security standard "restricted" demands of a container. */}}
{{- define "waybill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* One variable from the existing Secret. Parameters: root, name, optional. */}}
{{- define "waybill.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .root.Values.existingSecret }}, key: {{ .name }}, optional: {{ .optional | default false }}}
{{- end -}}

{{/* URLs of the stores, for every pod and for the migrations. */}}
{{- define "waybill.storeVariables" -}}
{{- if .Values.postgresql.enabled }}
- name: WAYBILL_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ include "waybill.name" . }}-postgresql-app, key: uri}
{{- else }}
{{ include "waybill.secretVariable" (dict "root" . "name" "WAYBILL_DATABASE_URL") }}
{{- end }}
{{- if .Values.valkey.enabled }}
- name: VALKEY_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.existingSecret }}, key: {{ .Values.valkey.passwordKey }}}
- name: WAYBILL_REDIS_URL
  value: redis://:$(VALKEY_PASSWORD)@{{ include "waybill.name" . }}-valkey:6379
{{- else }}
{{ include "waybill.secretVariable" (dict "root" . "name" "WAYBILL_REDIS_URL") }}
{{- end }}
{{- end -}}

{{/* Environment of a part. It stands in the pod, not in a ConfigMap: a change replaces the pods, and the migrations
     before an upgrade have the new values. Parameters: root, component. */}}
{{- define "waybill.environment" -}}
{{- $values := .root.Values -}}
{{- $part := index $values .component -}}
- {name: WAYBILL_PROCESSES, value: {{ .component }}}
- {name: WAYBILL_DELIVERY, value: live}
- {name: WAYBILL_LOG_OUTPUT, value: stdout}
- {name: WAYBILL_MAIL_HOST, value: {{ $values.mailHost | quote }}}
- {name: WAYBILL_PUBLIC_URL, value: {{ $values.publicUrl | quote }}}
- {name: WAYBILL_DRAIN_S, value: {{ $values.drainSeconds | quote }}}
- {name: WAYBILL_MX_WORKERS, value: {{ ternary "1" "0" $values.mx.enabled | quote }}}
{{- if eq .component "mta" }}
- {name: WAYBILL_MTA_WORKERS, value: {{ $part.workers | quote }}}
{{- end }}
{{- if and (eq .component "api") $part.proxyNetworks }}
- {name: WAYBILL_HTTP_PROXY_NETWORKS, value: {{ join "," $part.proxyNetworks | quote }}}
{{- end }}
{{- if has .component (list "relay" "mx") }}
- {name: WAYBILL_TLS_CERT, value: /tls/tls.crt}
- {name: WAYBILL_TLS_KEY, value: /tls/tls.key}
{{- if $part.proxyNetworks }}
- {name: WAYBILL_PROXY_NETWORKS, value: {{ join "," $part.proxyNetworks | quote }}}
{{- end }}
{{- end }}
{{- include "waybill.storeVariables" .root }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_KEY_PEPPER") }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_KEY_PEPPER_PREVIOUS" "optional" true) }}
{{- if has .component (list "api" "relay") }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_DATABASE_READ_URL" "optional" true) }}
{{- end }}
{{- if eq .component "api" }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_IDP_CLIENT_SECRET" "optional" true) }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_STRIPE_WEBHOOK_SECRET" "optional" true) }}
{{- end }}
{{- if has .component (list "api" "worker") }}
{{- if $values.cell }}
- {name: WAYBILL_CELL, value: {{ $values.cell | quote }}}
{{- end }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_DIRECTORY_URL" "optional" true) }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_PAYPROV_SECRET" "optional" true) }}
{{ include "waybill.secretVariable" (dict "root" .root "name" "WAYBILL_STRIPE_KEY" "optional" true) }}
{{- end }}
{{- range $name, $value := $values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Ports that a part listens on. Parameter: component. */}}
{{- define "waybill.ports" -}}
{{- if eq .component "api" }}
- {name: http, containerPort: 8080}
{{- else if eq .component "relay" }}
- {name: submission, containerPort: 2587}
- {name: submissions, containerPort: 2465}
{{- else if eq .component "mx" }}
- {name: smtp, containerPort: 2525}
{{- end }}
- {name: metrics, containerPort: 9090}
{{- end -}}

{{/* Probes. The API says over HTTP whether it can accept mail; of the others the supervisor knows whether every process
     is ready. It restarts processes itself, so only a supervisor that no longer answers is restarted from here. */}}
{{- define "waybill.probes" -}}
{{- if eq .component "api" }}
startupProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- else }}
startupProbe:
  exec: {command: [python, -m, ops.host.healthcheck]}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: 60
readinessProbe:
  exec: {command: [python, -m, ops.host.healthcheck]}
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 2
livenessProbe:
  exec: {command: [python, -m, ops.host.healthcheck, --alive]}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 4
{{- end }}
{{- end -}}

{{/* Seconds before SIGTERM: connections still arrive, or shards move to other pods. */}}
{{- define "waybill.preStopSeconds" -}}
{{- $part := index .root.Values .component -}}
{{- if eq .component "mta" }}{{ add $part.shardDrainSeconds 10 }}{{ else }}{{ $part.preStopSeconds | default 0 }}{{ end -}}
{{- end -}}

{{/* Metadata and specification of a pod. Parameters: root, component. */}}
{{- define "waybill.pod" -}}
{{- $part := index .root.Values .component -}}
{{- $isMta := eq .component "mta" -}}
metadata:
  labels:
    {{- include "waybill.labels" . | nindent 4 }}
  {{- with $part.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # Kubernetes would set WAYBILL_MX_PORT and the like for Services of these names, which are settings of Waybill.
  enableServiceLinks: false
  # Before SIGTERM; then the part drains, the process of the metrics ends after it, and 15 s remain.
  terminationGracePeriodSeconds: {{ add (include "waybill.preStopSeconds" .) (mul 2 (add .root.Values.drainSeconds 5)) 15 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $part.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $part.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $isMta $part.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "waybill.selector" . | nindent 14 }}
  {{- end }}
  topologySpreadConstraints:
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "waybill.selector" $ | nindent 10 }}
    {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "waybill.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- if and $isMta $part.sources }}
      command: [/usr/bin/tini, --, /bin/sh, -euc]
      args:
        - |
          source=$(printf '%s\n' "$MTA_SOURCES" | awk -v host="$HOSTNAME" '$1 == host { print $2 }')
          [ -n "$source" ] || { echo "mta.sources has no entry for $HOSTNAME" >&2; exit 1; }
          case $source in =*) source=$POD_IP$source ;; esac
          WAYBILL_SOURCE_IPS=$source exec python -m ops up
      {{- else }}
      args: [up]
      {{- end }}
      env:
        {{- include "waybill.environment" . | trim | nindent 8 }}
        {{- if and $isMta $part.hostNetwork (not (hasKey .root.Values.settings "WAYBILL_API_HOST")) }}
        # For the listener of the metrics, the only one of this pod: not on the node's public addresses.
        - name: WAYBILL_API_HOST
          valueFrom:
            fieldRef: {fieldPath: status.hostIP}
        {{- end }}
        {{- if and $isMta $part.sources }}
        - name: POD_IP
          valueFrom:
            fieldRef: {fieldPath: status.podIP}
        - name: MTA_SOURCES
          value: |
            {{- $name := include "waybill.name" .root }}
            {{- range $number, $source := $part.sources }}
            {{ $source.node | default (printf "%s-mta-%d" $name $number) }} {{ $source.address }}={{ $source.ehlo }}
            {{- end }}
        {{- end }}
      ports:
        {{- include "waybill.ports" . | trim | nindent 8 }}
      {{- include "waybill.probes" . | nindent 6 }}
      {{- if $isMta }}
      lifecycle:
        # Shards leave while this pod still delivers, so mail waits for no pod that is about to go. The mark is under
        # the pod's name and outlives it, so the next pod of this name takes it back.
        postStart:
          exec:
            command:
              - /bin/sh
              - -c
              - for try in $(seq 60); do python -m ops shards drain "$HOSTNAME" --undo --no-wait && exit 0; sleep 2; done; exit 1
        preStop:
          exec:
            command: [/bin/sh, -c, python -m ops shards drain "$HOSTNAME" --timeout {{ $part.shardDrainSeconds }} --reason "the pod stops"]
      {{- else if $part.preStopSeconds }}
      lifecycle:
        # Until every proxy has left this pod out, it still accepts connections.
        preStop:
          exec: {command: [sleep, {{ $part.preStopSeconds | quote }}]}
      {{- end }}
      resources:
        {{- toYaml $part.resources | nindent 8 }}
      securityContext:
        {{- include "waybill.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: state, mountPath: /var/lib/waybill}
        - {name: tmp, mountPath: /tmp}
        {{- if has .component (list "relay" "mx") }}
        - {name: tls, mountPath: /tls, readOnly: true}
        {{- end }}
  volumes:
    {{- if not (and $isMta $part.persistence.enabled) }}
    - {name: state, emptyDir: {}}
    {{- end }}
    - {name: tmp, emptyDir: {}}
    {{- if has .component (list "relay" "mx") }}
    - name: tls
      secret: {secretName: {{ .root.Values.tls.secret }}, defaultMode: 0440}
    {{- end }}
{{- end -}}

{{/* An egress rule to public addresses: never to the cluster, its nodes, or metadata services. Parameter: list of TCP
     ports, empty for all. */}}
{{- define "waybill.internet" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
    - ipBlock:
        cidr: "::/0"
        except: ["fc00::/7", "fe80::/10"]
  ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- else }}
    - {protocol: TCP}
    {{- end }}
{{- end -}}
