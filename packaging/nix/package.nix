# treaper from its source tree, by Nix's own Rust. `nix run` and `nix profile install` use it through flake.nix.
{ lib, rustPlatform }:

rustPlatform.buildRustPackage {
  pname = "treaper";
  version = (lib.importTOML ../../Cargo.toml).package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--bin" "treaper" ];
  # The tests install Debian's packages; the build tries the binary below.
  doCheck = false;

  installPhase = ''
    runHook preInstall
    patchShebangs packaging/install
    DESTDIR= PREFIX=$out SYSCONFDIR=$out/etc packaging/install target/*/release/treaper
    runHook postInstall
  '';
  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/treaper --version
    $out/bin/treaper -- sh -c 'exit 7' || [ $? -eq 7 ]
  '';

  meta = {
    description = "Run a server and stop everything it ever started";
    homepage = "https://treaper.example/treaper";
    license = [ lib.licenses.mit lib.licenses.asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = "treaper";
  };
}
