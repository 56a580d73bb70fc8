// Robots in three.js: a viewport per robot, a camera that follows it.

import * as THREE from "three";
import type { Player } from "./player";
import type { RobotSimulation, RobotWorld } from "./robot";
import type { Grip, Shown, View } from "./view";
import type { Point } from "./world";

const SKY = new THREE.Color("#e4ebf3");
const PLANE = 0, SPHERE = 2, CAPSULE = 3, ELLIPSOID = 4, CYLINDER = 5, BOX = 6, MESH = 7; // mjtGeom
const TRAIL = 600;
const FOLLOW = 12; // per second: how fast the camera comes after a robot
const LIGHT = new THREE.Vector3(-2.2, -3, 6); // from where it shines

/** Along the light onto the floor, and a little above it. */
const ON_FLOOR = new THREE.Matrix4().set(
  1, 0, -LIGHT.x / LIGHT.z, 0,
  0, 1, -LIGHT.y / LIGHT.z, 0,
  0, 0, 0, 0.003,
  0, 0, 0, 1,
);

const FLOOR_VERTEX = `
varying vec2 place;
void main() {
  vec4 world = modelMatrix * vec4(position, 1.0);
  place = world.xy;
  gl_Position = projectionMatrix * viewMatrix * world;
}`;
const FLOOR_FRAGMENT = `
varying vec2 place;
uniform vec2 centre;
uniform vec3 sky;
uniform float reach;
float lines(vec2 p, float width) {
  vec2 d = abs(fract(p - 0.5) - 0.5) / max(fwidth(p), vec2(1e-5));
  return 1.0 - smoothstep(width - 0.5, width + 0.5, min(d.x, d.y));
}
void main() {
  vec2 cell = floor(place);
  float dark = mod(cell.x + cell.y, 2.0);
  vec3 colour = mix(vec3(0.80, 0.845, 0.895), vec3(0.765, 0.815, 0.872), dark);
  colour = mix(colour, vec3(0.67, 0.73, 0.80), 0.6 * lines(place, 0.8));
  colour = mix(colour, vec3(0.50, 0.58, 0.68), 0.7 * lines(place / 5.0, 1.1));
  float far = smoothstep(0.25, 1.0, length(place - centre) / reach);
  gl_FragColor = vec4(mix(colour, sky, far), 1.0);
}`;

/** The shapes of one robot, and where they were one control step ago and now. */
class Body {
  readonly group = new THREE.Group();
  readonly meshes: THREE.Mesh[] = [];
  private tinted: { material: THREE.MeshStandardMaterial; shade: number }[] = [];
  private geoms: number[] = [];
  private before: { at: THREE.Vector3; turn: THREE.Quaternion }[] = [];
  private now: { at: THREE.Vector3; turn: THREE.Quaternion }[] = [];
  private root = { before: new THREE.Vector3(), now: new THREE.Vector3() };
  readonly place = new THREE.Vector3();
  readonly follow = new THREE.Vector3();
  private ahead = 0; // control steps since the camera moved,
  private shown = 0; // and how far the one before had come
  private colour = "";
  private trail: THREE.Line;
  readonly shadow = new THREE.Group(); // drawn as flat shapes on the floor, where shadow maps are too slow

  constructor(world: RobotWorld) {
    const model = world.model as any;
    const colours = Array.from({ length: model.ngeom }, (_, i) => rgba(model, i));
    const common = mostFrequent(colours.filter((_, i) => model.geom_type[i] !== PLANE).map(String));
    for (let i = 0; i < model.ngeom; i++) {
      const shape = geometry(model, i);
      if (!shape || colours[i][3] === 0 || model.geom_group[i] > 2) continue;
      const material = new THREE.MeshStandardMaterial({ roughness: 0.55, metalness: 0.05 });
      material.color.setRGB(colours[i][0], colours[i][1], colours[i][2], THREE.SRGBColorSpace);
      if (colours[i][3] < 1) Object.assign(material, { transparent: true, opacity: colours[i][3] });
      // Seen from the side, the far leg is darker.
      const shade = world.spec.planar && farSide(model, i) ? 0.62 : 1;
      if (String(colours[i]) === common) this.tinted.push({ material, shade });
      const mesh = new THREE.Mesh(shape, material);
      mesh.castShadow = true;
      mesh.userData.body = model.geom_bodyid[i];
      mesh.matrixAutoUpdate = true;
      this.meshes.push(mesh);
      this.geoms.push(i);
      this.group.add(mesh);
      this.before.push({ at: new THREE.Vector3(), turn: new THREE.Quaternion() });
      this.now.push({ at: new THREE.Vector3(), turn: new THREE.Quaternion() });
    }
    const dark = new THREE.MeshBasicMaterial({ color: "#a7b4c5", side: THREE.DoubleSide });
    for (const mesh of this.meshes) {
      const flat = new THREE.Mesh(mesh.geometry, dark);
      flat.matrixAutoUpdate = false;
      flat.frustumCulled = false;
      this.shadow.add(flat);
    }
    this.shadow.visible = false;
    this.group.add(this.shadow);
    const line = new THREE.BufferGeometry();
    line.setAttribute("position", new THREE.BufferAttribute(new Float32Array(3 * TRAIL), 3));
    this.trail = new THREE.Line(line, new THREE.LineBasicMaterial({ transparent: true, opacity: 0.55 }));
    this.trail.frustumCulled = false;
    this.group.add(this.trail);
  }

  capture(simulation: RobotSimulation, jump: boolean): void {
    const data = simulation.data as any;
    const at = data.geom_xpos;
    const turn = data.geom_xmat;
    [this.before, this.now] = [this.now, this.before];
    const matrix = new THREE.Matrix4();
    this.geoms.forEach((g, k) => {
      const m = turn.subarray(9 * g, 9 * g + 9);
      matrix.set(m[0], m[1], m[2], 0, m[3], m[4], m[5], 0, m[6], m[7], m[8], 0, 0, 0, 0, 1);
      this.now[k].at.set(at[3 * g], at[3 * g + 1], at[3 * g + 2]);
      this.now[k].turn.setFromRotationMatrix(matrix);
      if (jump) {
        this.before[k].at.copy(this.now[k].at);
        this.before[k].turn.copy(this.now[k].turn);
      }
    });
    this.root.before.copy(this.root.now);
    this.root.now.set(...simulation.place());
    this.ahead++;
    if (jump) {
      this.root.before.copy(this.root.now);
      this.follow.copy(this.root.now);
    }
  }

  update(player: Player, colour: string, part: number): void {
    this.meshes.forEach((mesh, k) => {
      mesh.position.lerpVectors(this.before[k].at, this.now[k].at, part);
      mesh.quaternion.slerpQuaternions(this.before[k].turn, this.now[k].turn, part);
    });
    if (this.shadow.visible) {
      this.shadow.children.forEach((flat, k) => {
        this.meshes[k].updateMatrix();
        flat.matrix.multiplyMatrices(ON_FLOOR, this.meshes[k].matrix);
      });
    }
    this.place.lerpVectors(this.root.before, this.root.now, part);
    // By simulated time, not by frames: where those are few, a fast robot would leave the picture.
    this.follow.lerp(this.place, 1 - Math.exp(-FOLLOW * player.run.dt * Math.max(0, this.ahead + part - this.shown)));
    [this.ahead, this.shown] = [0, part];
    if (colour !== this.colour) {
      this.colour = colour;
      for (const { material, shade } of this.tinted) material.color.set(colour).multiplyScalar(shade);
      (this.trail.material as THREE.LineBasicMaterial).color.set(colour);
    }
    const positions = this.trail.geometry.getAttribute("position") as THREE.BufferAttribute;
    const points = player.trail.slice(-TRAIL);
    points.forEach((point, i) => positions.setXYZ(i, ...point));
    positions.needsUpdate = true;
    this.trail.geometry.setDrawRange(0, points.length);
  }
}

export class RobotView implements View {
  private renderer: THREE.WebGLRenderer;
  private scene = new THREE.Scene();
  private camera: THREE.PerspectiveCamera;
  private light = new THREE.DirectionalLight("#ffffff", 2.1);
  private floor: THREE.Mesh<THREE.PlaneGeometry, THREE.ShaderMaterial>;
  private shadows: THREE.Mesh;
  private bodies: Body[] = [];
  private azimuth: number;
  private elevation: number;
  private distance: number;
  private extent: number;
  private height = 1;
  private slow = 0; // frames in a row that took long
  private last = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private world: RobotWorld,
  ) {
    const plain = drawsInSoftware(); // then every pixel counts
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: !plain, powerPreference: "high-performance" });
    this.renderer.setScissorTest(true);
    this.renderer.shadowMap.enabled = !plain;
    this.renderer.shadowMap.type = THREE.PCFShadowMap;
    this.extent = 1.5 * world.reach;
    const planar = world.spec.planar;
    this.azimuth = planar ? -Math.PI / 2 + 0.28 : -Math.PI / 3;
    this.elevation = planar ? 0.2 : 0.42;
    this.distance = 2.15 * this.extent;
    this.camera = new THREE.PerspectiveCamera(34, 1, 0.05, 400);
    this.camera.up.set(0, 0, 1);
    this.scene.background = SKY;
    const uniforms = { centre: { value: new THREE.Vector2() }, sky: { value: SKY.clone().convertLinearToSRGB() }, reach: { value: 30 } };
    const paint = new THREE.ShaderMaterial({ vertexShader: FLOOR_VERTEX, fragmentShader: FLOOR_FRAGMENT, uniforms });
    this.floor = new THREE.Mesh(new THREE.PlaneGeometry(80, 80), paint);
    this.shadows = new THREE.Mesh(new THREE.PlaneGeometry(20, 20), new THREE.ShadowMaterial({ opacity: 0.28 }));
    this.shadows.receiveShadow = true;
    this.shadows.position.z = 0.002;
    this.light.castShadow = this.shadows.visible = !plain;
    this.light.shadow.mapSize.set(1024, 1024);
    Object.assign(this.light.shadow.camera, { left: -3, right: 3, top: 3, bottom: -3, near: 1, far: 20 });
    this.light.shadow.camera.updateProjectionMatrix();
    this.light.shadow.bias = -0.0005;
    this.scene.add(this.floor, this.shadows, this.light, this.light.target);
    this.scene.add(new THREE.HemisphereLight("#ffffff", "#9fb0c4", 1.5));
  }

  private body(index: number): Body {
    while (this.bodies.length <= index) {
      const body = new Body(this.world);
      this.bodies.push(body);
      this.scene.add(body.group);
    }
    return this.bodies[index];
  }

  resize(width: number, height: number, ratio: number): void {
    this.height = height;
    this.renderer.setPixelRatio(ratio);
    this.renderer.setSize(width, height, false);
  }

  stepped(index: number, player: Player): void {
    this.body(index).capture(player.simulation as RobotSimulation, false);
  }

  jumped(index: number, player: Player): void {
    this.body(index).capture(player.simulation as RobotSimulation, true);
  }

  private aim(body: Body, aspect: number): void {
    const target = body.follow.clone();
    target.z = 0.35 * target.z + 0.24 * this.extent;
    const flat = Math.cos(this.elevation);
    const distance = this.distance * Math.max(1, 1.15 / aspect);
    this.camera.position.set(
      target.x + distance * flat * Math.cos(this.azimuth),
      target.y + distance * flat * Math.sin(this.azimuth),
      target.z + distance * Math.sin(this.elevation),
    );
    this.camera.aspect = aspect;
    this.camera.lookAt(target);
    this.camera.updateProjectionMatrix();
    this.camera.updateMatrixWorld();
  }

  draw(shown: Shown[], part: number): void {
    const began = performance.now();
    shown.forEach(({ player, colour, tile }, index) => {
      const body = this.body(index);
      body.shadow.visible = !this.renderer.shadowMap.enabled;
      body.update(player, colour, part);
      this.bodies.forEach((other, i) => (other.group.visible = i === index));
      this.aim(body, tile.width / tile.height);
      const { x, y } = body.follow;
      this.floor.position.set(Math.round(x), Math.round(y), 0);
      this.floor.material.uniforms.centre.value.set(x, y);
      this.shadows.position.set(x, y, 0.002);
      this.light.target.position.set(x, y, 0);
      this.light.position.set(x + LIGHT.x, y + LIGHT.y, LIGHT.z);
      const gap = shown.length > 1 ? 1 : 0;
      const box = [tile.x + gap, this.height - tile.y - tile.height + gap, tile.width - 2 * gap, tile.height - 2 * gap];
      this.renderer.setViewport(...(box as [number, number, number, number]));
      this.renderer.setScissor(...(box as [number, number, number, number]));
      this.renderer.render(this.scene, this.camera);
    });
    this.adapt(began);
  }

  /** Where drawing is slow, as without a graphics card, shadow maps go first, then pixels. */
  private adapt(now: number): void {
    const gap = now - this.last;
    this.last = now;
    this.slow = gap > 45 && gap < 5000 ? this.slow + 1 : Math.max(0, this.slow - 1);
    if (this.slow < 5) return;
    this.slow = 0;
    if (this.renderer.shadowMap.enabled) {
      this.renderer.shadowMap.enabled = this.light.castShadow = this.shadows.visible = false;
    } else if (this.renderer.getPixelRatio() > 0.6) {
      this.renderer.setPixelRatio(Math.max(0.6, this.renderer.getPixelRatio() * 0.8));
    }
  }

  grip(index: number, x: number, y: number): Grip | null {
    const body = this.body(index);
    const tile = this.canvas; // the camera is aimed anew: other tiles were drawn since
    const aspect = this.aspects[index] ?? tile.width / tile.height;
    this.aim(body, aspect);
    const caster = new THREE.Raycaster();
    caster.setFromCamera(new THREE.Vector2(x, y), this.camera);
    body.group.updateMatrixWorld(true);
    const hit = caster.intersectObjects(body.meshes, false)[0];
    if (!hit) return null;
    const held = hit.object.userData.body as number;
    const local = hit.object.worldToLocal(hit.point.clone());
    return {
      pull: (toX, toY) => {
        this.aim(body, aspect);
        const from = hit.object.localToWorld(local.clone());
        const facing = this.camera.getWorldDirection(new THREE.Vector3());
        const plane = new THREE.Plane().setFromNormalAndCoplanarPoint(facing, from);
        caster.setFromCamera(new THREE.Vector2(toX, toY), this.camera);
        const to = caster.ray.intersectPlane(plane, new THREE.Vector3()) ?? from;
        const force = to.sub(from).multiplyScalar(4 / this.extent).clampLength(0, 6);
        return { force: force.toArray() as Point, body: held };
      },
    };
  }

  aspects: number[] = []; // of the tiles

  turn(dx: number, dy: number): void {
    this.azimuth -= dx;
    this.elevation = Math.max(0.02, Math.min(1.45, this.elevation + dy));
  }

  zoom(factor: number): void {
    this.distance = Math.max(0.8 * this.extent, Math.min(12 * this.extent, this.distance * factor));
  }
}

function drawsInSoftware(): boolean {
  const context = document.createElement("canvas").getContext("webgl2");
  const about = context?.getExtension("WEBGL_debug_renderer_info");
  const name = about ? String(context!.getParameter(about.UNMASKED_RENDERER_WEBGL)) : "";
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(name);
}

function rgba(model: any, geom: number): number[] {
  const material = model.geom_matid[geom];
  const [from, at] = material >= 0 ? [model.mat_rgba, material] : [model.geom_rgba, geom];
  return Array.from(from.subarray(4 * at, 4 * at + 4), (x: unknown) => Math.round(1000 * (x as number)) / 1000);
}

function mostFrequent(texts: string[]): string {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

/** Does it belong to a limb beyond the plane of the torso? */
function farSide(model: any, geom: number): boolean {
  let y = 0;
  for (let body = model.geom_bodyid[geom]; body > 0; body = model.body_parentid[body]) y += model.body_pos[3 * body + 1];
  return y > 1e-6;
}

function geometry(model: any, geom: number): THREE.BufferGeometry | null {
  const [a, b, c] = model.geom_size.subarray(3 * geom, 3 * geom + 3);
  const upright = (shape: THREE.BufferGeometry) => shape.rotateX(Math.PI / 2); // from y to z
  switch (model.geom_type[geom]) {
    case SPHERE:
      return new THREE.SphereGeometry(a, 24, 16);
    case CAPSULE:
      return upright(new THREE.CapsuleGeometry(a, 2 * b, 10, 24));
    case ELLIPSOID:
      return new THREE.SphereGeometry(1, 28, 18).scale(a, b, c);
    case CYLINDER:
      return upright(new THREE.CylinderGeometry(a, a, 2 * b, 28));
    case BOX:
      return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
    case MESH:
      return meshGeometry(model, model.geom_dataid[geom]);
    default:
      return null; // the floor has its own
  }
}

function meshGeometry(model: any, mesh: number): THREE.BufferGeometry | null {
  if (mesh < 0) return null;
  const vertices = model.mesh_vert.slice(3 * model.mesh_vertadr[mesh], 3 * (model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh]));
  const faces = model.mesh_face.slice(3 * model.mesh_faceadr[mesh], 3 * (model.mesh_faceadr[mesh] + model.mesh_facenum[mesh]));
  const shape = new THREE.BufferGeometry();
  shape.setAttribute("position", new THREE.BufferAttribute(Float32Array.from(vertices), 3));
  shape.setIndex(new THREE.BufferAttribute(Uint32Array.from(faces), 1));
  shape.computeVertexNormals();
  return shape;
}
