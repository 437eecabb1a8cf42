# treaper from its source tree, by Nix's own Rust. `nix run` and `nix profile install` use it through flake.nix.
{ lib, rustPlatform, bash, groff, mandoc, procps, python3, util-linux }:

rustPlatform.buildRustPackage {
  pname = "treaper";
  version = (lib.importTOML ../../Cargo.toml).package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--bin" "treaper" ];
  nativeCheckInputs = [ bash groff mandoc procps python3 util-linux ];
  checkPhase = ''
    runHook preCheck
    patchShebangs tests demo
    JOBS=$NIX_BUILD_CORES tests/run --offline
    runHook postCheck
  '';

  installPhase = ''
    runHook preInstall
    patchShebangs packaging/install
    # There is no /bin/kill here.
    sed -i 's#^ExecReload=/bin/kill#ExecReload=${util-linux}/bin/kill#' packaging/systemd/*.service
    DESTDIR= PREFIX=$out SYSCONFDIR=$out/etc packaging/install target/*/release/treaper
    runHook postInstall
  '';
  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/treaper --version
    status=0
    $out/bin/treaper -- sh -c 'exit 7' || status=$?
    [ "$status" -eq 7 ]
  '';

  meta = {
    description = "Run a server and stop everything it ever started";
    homepage = "https://treaper.example/treaper";
    license = [ lib.licenses.mit lib.licenses.asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = "treaper";
  };
}
